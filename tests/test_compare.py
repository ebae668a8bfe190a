"""`what_changed`: which lines differ, read from the files as they are now."""

import functools
import importlib
import os
import sys
from html.parser import HTMLParser
from textwrap import dedent

import pytest

from ddp_workbook.errors import WorkbookError
from ddp_workbook.notebook.code_diff import what_changed

OLD = '''
    """One process."""

    import torch


    def train(epochs):
        """Train on one process."""
        model = Net()  # any model
        # found by trying
        optimizer = SGD(model.parameters(), lr=0.1)
        losses = []
        for epoch in range(epochs):
            for images, labels in batches():
                loss = loss_of(model, images, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())

        return losses


    class Net(torch.nn.Module):
        def forward(self, x):
            return x < 1 & 2
'''
NEW = '''
    """Many processes."""

    import torch
    import torch.distributed as dist


    def train(epochs):
        """Train this rank's part."""
        model = DDP(Net())
        optimizer = SGD(model.parameters(), lr=0.1)
        losses = []
        for epoch in range(epochs):
            sampler.set_epoch(epoch)  # else the same order each time
            # this rank's own batches
            for images, labels in batches():
                loss = loss_of(model, images, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses


    class Net(torch.nn.Module):
        def forward(self, x):
            return x > 1 & 2
'''


class Table(HTMLParser):
    """The cells of a table, row by row: (tag, attributes, text)."""

    def __init__(self, html: str):
        super().__init__()
        self.rows, self.cell, self.caption, self.tags = [], None, "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.where = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append([tag, dict(attributes), ""])

    def handle_data(self, text):
        if self.where == "caption":
            self.caption += text
        elif self.where != "style" and self.rows and self.rows[-1]:
            self.rows[-1][-1][2] += text.strip("\n")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that writes a module and imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write(name: str, source: str):
        (tmp_path / f"{name}.py").write_text(dedent(source).lstrip("\n"), encoding="utf-8")
        # Only the module object is needed: what it would import need not be there.
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        names.append(name)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return write


@pytest.fixture
def chapters(module):
    return module("one", OLD), module("many", NEW)


def test_what_changed_in_a_function(chapters):
    one, many = chapters
    change = what_changed(one.train, many.train)
    assert change.changed_lines == 2
    assert str(change) == dedent("""\
        2 changed lines: one.train → many.train
        --- one.train
        +++ many.train
        @@ -6 +7 @@
         def train(epochs):
        -    model = Net()  # any model
        +    model = DDP(Net())
             optimizer = SGD(model.parameters(), lr=0.1)
             losses = []
             for epoch in range(epochs):
        +        sampler.set_epoch(epoch)  # else the same order each time
        +        # this rank's own batches
                 for images, labels in batches():
                     loss = loss_of(model, images, labels)
        … 5 equal lines""")
    assert repr(change) == str(change)


def test_comments_and_docstrings_count_where_asked_for(chapters):
    one, many = chapters
    everything = what_changed(one.train, many.train, comments=True)
    # Docstring, model, the old comment, set_epoch, the empty line; the new comment as always.
    assert everything.changed_lines == 6
    assert '-    """Train on one process."""' in str(everything)
    assert "-    # found by trying" in str(everything)
    assert "# found by trying" not in str(what_changed(one.train, many.train))


def test_an_edited_comment_is_no_change_and_an_edited_string_is(module):
    old = module("a", "def f():\n    x = '# one'  # one\n    return x\n")
    comment = module("b", "def f():\n    x = '# one'  # two\n    return x\n")
    string = module("c", "def f():\n    x = '# two'  # one\n    return x\n")
    assert what_changed(old.f, comment.f).changed_lines == 0
    assert "The same code: a.f → b.f" in str(what_changed(old.f, comment.f))
    assert what_changed(old.f, string.f).changed_lines == 1


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("a = 1\nb = 2\n", "a = 1\nb = 2\n", 0),
        ("a = 1\n", "", 1),
        ("", "a = 1\nb = 2\n", 2),
        ("total = a + b\n", "total = a - b\n", 1),  # changed: one row
        ("total = a + b\n", "import os\n", 2),  # nothing in common: one gone, one come
        ("a = 1\n\n\nb = 2\n", "a = 1\nb = 2\n", 0),
        ("if x:\n    a = 1\n", "a = 1\n", 2),  # the indentation is code
        ('"""Old."""\na = 1\n', '"""New."""\na = 1\n', 0),
        ('s = """\nold line\n"""\n', 's = """\nnew line\n"""\n', 1),
    ],
)
def test_counting(tmp_path, old, new, count):
    for name, text in (("old.py", old), ("new.py", new)):
        (tmp_path / name).write_text(text)
    change = what_changed(tmp_path / "old.py", str(tmp_path / "new.py"))
    assert change.changed_lines == count
    signs = [line[0] for line in str(change).splitlines()[3:]]
    assert ("-" in signs or "+" in signs) == bool(count)


def test_modules_classes_methods_and_paths(chapters, tmp_path):
    one, many = chapters
    assert what_changed(one, many).changed_lines == 4
    assert what_changed(one.Net, many.Net).changed_lines == 1
    assert what_changed(one.Net.forward, many.Net().forward).changed_lines == 1
    assert what_changed(one, tmp_path / "many.py").changed_lines == 4
    assert what_changed(functools.partial(one.train, 3), many.train).changed_lines == 2
    assert "--- one.Net.forward" in str(what_changed(one.Net.forward, many.Net.forward))


def test_decorated_nested_and_conditional_definitions(module):
    source = """
        import functools

        def keep(f):
            @functools.wraps(f)
            def kept(*a):
                return f(*a)
            return kept

        if {first}:
            @keep
            def f():
                return 1
        else:
            def f():
                return 2

        def outer():
            def inner():
                return {first}
            return inner
    """
    a, b = module("a", source.format(first=True)), module("b", source.format(first=False))
    text = str(what_changed(a.f, b.f))
    assert "-@keep" in text and "-    return 1" in text and "+    return 2" in text
    assert what_changed(a.outer(), b.outer()).changed_lines == 1
    assert str(what_changed(a.outer(), b.outer())).startswith("1 changed line: a.outer.inner")


def test_an_edit_shows_at_once(chapters, tmp_path):
    one, many = chapters
    path = tmp_path / "many.py"
    stamp = path.stat().st_mtime_ns
    path.write_text("\n\n# moved down\n" + path.read_text().replace("DDP(Net())", "FSDP(Net())"))
    os.utime(path, ns=(stamp, stamp))
    text = str(what_changed(one.train, many.train))
    assert "+    model = FSDP(Net())" in text and "@@ -6 +10 @@" in text


def test_the_table(chapters):
    table = Table(what_changed(*chapters)._repr_html_())
    assert table.caption.startswith("4 changed lines: one.py → many.py")
    heads = [(attributes["scope"], text) for tag, attributes, text in table.rows[0] if tag == "th"]
    assert heads == [("col", "line"), ("col", "one.py"), ("col", "line"), ("col", "many.py")]
    body = [[text for _, _, text in row] for row in table.rows[1:]]
    assert [
        "8",
        "\N{MINUS SIGN}     model = Net()  # any model",
        "9",
        "+     model = DDP(Net())",
    ] in body
    assert ["", "", "4", "+ import torch.distributed as dist"] in body
    assert ["3", "  import torch", "3", "  import torch"] in body
    assert ["… 5 equal lines"] in body
    assert all(len(row) in (1, 4) for row in body)


def test_words_are_marked_and_html_is_escaped(chapters):
    html = what_changed(*(chapter.Net for chapter in chapters))._repr_html_()
    assert "return x <del>&lt;</del> 1 &amp; 2" in html
    assert "return x <ins>&gt;</ins> 1 &amp; 2" in html


def test_the_table_takes_its_colours_from_the_page(chapters):
    """Legible on light and on dark: text in JupyterLab's own colour, no opaque background."""
    html = what_changed(*chapters)._repr_html_()
    style = html[html.index("<style>") : html.index("</style>")]
    backgrounds = [part.split(";")[0].strip() for part in style.split("background:")[1:]]
    assert all(value == "none" or value.startswith("rgba(") for value in backgrounds)
    assert "color: var(--jp-content-font-color1, inherit)" in style


def test_equal_code_is_said(chapters):
    one, _ = chapters
    change = what_changed(one.train, one.train)
    assert change.changed_lines == 0
    assert Table(change._repr_html_()).caption.startswith("The same code")
    assert str(change).endswith("… 13 equal lines")


def test_files_of_the_same_name_are_told_apart(tmp_path):
    for folder, text in (("a", "x = 1\n"), ("b", "x = 2\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(text)
    text = str(what_changed(tmp_path / "a" / "train.py", tmp_path / "b" / "train.py"))
    assert str(tmp_path / "a") in text and str(tmp_path / "b") in text


def test_a_job_script_is_compared_line_by_line(tmp_path):
    (tmp_path / "a.sh").write_text("#SBATCH --nodes=1\nsrun x\n")
    (tmp_path / "b.sh").write_text("#SBATCH --nodes=2\nsrun x\n")
    assert what_changed(tmp_path / "a.sh", tmp_path / "b.sh").changed_lines == 1


def test_errors_in_plain_words(chapters, tmp_path, monkeypatch):
    one, many = chapters

    def message(thing) -> str:
        with pytest.raises(WorkbookError) as error:
            what_changed(one, thing)
        return str(error.value)

    (tmp_path / "x.ipynb").write_text("{}")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'")
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    assert "`len` is not written in Python" in message(len)
    assert "`list` is not written in Python" in message(list)
    assert "`sys` is not written in Python" in message(sys)
    assert "There is no file nowhere.py" in message("nowhere.py")
    assert "is a folder" in message(tmp_path)
    assert "is a notebook" in message(tmp_path / "x.ipynb")
    assert "is not a text file in UTF-8" in message(tmp_path / "bytes.py")
    assert "broken.py, line 2: Python cannot read this file" in message(tmp_path / "broken.py")
    assert "got a Net object" in message(many.Net())
    assert "lambda" in message(lambda: None)
    assert "There is no file" in message("x = 1\n" * 1000)

    (tmp_path / "many.py").write_text("def other():\n    pass\n")
    assert "`train` is no longer in" in message(many.train)
    (tmp_path / "many.py").unlink()
    assert "`train` came from" in message(many.train)

    cell = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", cell)
    exec(compile("def f(): pass\nclass C: pass", "<ipython-input-1>", "exec"), cell.__dict__)
    assert "`f` was defined in a notebook cell" in message(cell.f)
    assert "`C` was defined in a notebook cell" in message(cell.C)


def test_a_rewritten_file_of_chapter_length_is_compared_in_time(tmp_path, chapters):
    import time

    for name, word in (("a.py", "alpha"), ("b.py", "beta")):
        lines = [f"{word}_{n} = function_{n * 7 % 11}({word}, {n})" for n in range(120)]
        (tmp_path / name).write_text("\n".join(lines))
    start = time.perf_counter()
    assert what_changed(tmp_path / "a.py", tmp_path / "b.py").changed_lines >= 120
    assert time.perf_counter() - start < 15
