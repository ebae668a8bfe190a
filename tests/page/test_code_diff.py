"""`what_changed`: which lines differ, read from the files as they are now."""

import importlib
import re
import sys
import types
from textwrap import dedent

import pytest

from ddp_workbook.page.code_diff import what_changed
from manyranks.errors import WorkbookError

OLD = '''
import torch

DEVICE = "cpu"


def setup():
    return DEVICE


def train(epochs):
    """Train on one process."""
    model = Net()  # any model
    optimizer = SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for images, labels in batches():
            loss = loss_of(model, images, labels)
            loss.backward()

            optimizer.step()
            optimizer.zero_grad()


class Net(torch.nn.Module):
    def forward(self, x):
        return x < 1 & 2
'''
NEW = '''
import torch
import torch.distributed as dist

DEVICE = "cpu"


def setup():
    return DEVICE


def train(epochs):
    """Train this rank's part."""
    model = DDP(Net())
    optimizer = SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # else the same order each time
        # this rank's own batches
        for images, labels in batches():
            loss = loss_of(model, images, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


class Net(torch.nn.Module):
    def forward(self, x):
        return x > 1 & 2
'''


@pytest.fixture
def chapters(tmp_path, monkeypatch):
    """Two modules, imported from files in `tmp_path`."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("one", OLD), ("many", NEW)):
        (tmp_path / f"{name}.py").write_text(text)
    yield importlib.import_module("one"), importlib.import_module("many")
    del sys.modules["one"], sys.modules["many"]


def test_a_function_as_text(chapters):
    one, many = chapters
    change = what_changed(one.train, many.train)
    assert change.changed_lines == 2
    assert repr(change) == dedent("""\
        2 changed lines: one.train → many.train
        --- one.train
        +++ many.train
         def train(epochs):
        -    model = Net()  # any model
        +    model = DDP(Net())
             optimizer = SGD(model.parameters(), lr=0.1)
             for epoch in range(epochs):
        +        sampler.set_epoch(epoch)  # else the same order each time
        +        # this rank's own batches
                 for images, labels in batches():
                     loss = loss_of(model, images, labels)
        … 3 equal lines""")


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("a = 1\nb = 2\n", "a = 1\nb = 2\n", 0),
        ("a = 1\nb = 2\n", "b = 2\n", 1),
        ("total = a + b\n", "total = a - b\n", 1),  # a changed line counts once
        ("total = a + b\n", "import os\n", 2),  # one gone, another come
        ("a = 1\n\n\nb = 2\n", "a = 1\nb = 2\n", 0),
        ("if x:\n    train(model)\n", "train(model)\n", 2),  # the indentation is code
        ('"""Old."""\na = 1\n', '"""New\n\nand longer."""\na = 1\n', 0),
        ("a = 1  # one\n# two\n", "a = 1  # two\n", 0),
        ("a = '# one'\n", "a = '# two'\n", 1),
        ("s = '''\n# the old text\n'''\n", "s = '''\n# the next text\n'''\n", 1),
    ],
)
def test_what_counts(tmp_path, old, new, count):
    paths = [tmp_path / "old.py", tmp_path / "new.py"]
    for path, text in zip(paths, (old, new), strict=True):
        path.write_text(text)
    assert what_changed(*map(str, paths)).changed_lines == count


def test_modules_classes_methods_and_paths(chapters, tmp_path):
    one, many = chapters
    (tmp_path / "job.sh").write_text("#SBATCH --nodes=1\nsrun x\n")
    (tmp_path / "larger.sh").write_text("#SBATCH --nodes=2\nsrun x\n")
    assert what_changed(tmp_path / "job.sh", tmp_path / "larger.sh").changed_lines == 1
    assert what_changed(one, many).changed_lines == 4
    assert what_changed(one, tmp_path / "many.py").changed_lines == 4
    assert what_changed(one.Net, many.Net).changed_lines == 1
    assert what_changed(one.Net.forward, many.Net.forward).summary == (
        "1 changed line: one.Net.forward → many.Net.forward"
    )
    assert what_changed(one.train, one.train).summary.startswith("The same code")


def test_what_is_imported_is_no_change(chapters, tmp_path):
    """Nor is what only the imported function needs."""
    one, _ = chapters
    definitions = 'DEVICE = "cpu"\n\n\ndef setup():\n    return DEVICE'
    (tmp_path / "two.py").write_text(OLD.replace(definitions, "from one import setup"))
    change = what_changed(one, tmp_path / "two.py")
    assert change.changed_lines == 1 and "+from one import setup" in str(change)
    assert "Left out: DEVICE, setup" in str(change)
    assert "Left out: DEVICE, setup" in change._repr_html_()


def test_an_edit_shows_at_once_wherever_the_function_stands_now(chapters, tmp_path):
    one, many = chapters
    edited = "def first():\n    return 1\n" + NEW.replace("DDP(Net())", "FSDP(Net())")
    (tmp_path / "many.py").write_text(edited)
    assert "+    model = FSDP(Net())" in str(what_changed(one.train, many.train))


def cells(html: str) -> list[list[str]]:
    """The texts of a table's cells, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    texts = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<[^>]*>", "", text) for text in row] for row in texts]


def test_the_table(chapters):
    html = what_changed(*chapters)._repr_html_()
    assert "<caption>4 changed lines: one.py → many.py" in html
    head, *body = cells(html)
    assert head == ["line", "one.py", "line", "many.py"] and html.count('scope="col"') == 4
    assert ["", "", "3", "+ import torch.distributed as dist"] in body
    assert ["2", "  import torch", "2", "  import torch"] in body
    changed = ["\N{MINUS SIGN}     model = Net()  # any model", "+     model = DDP(Net())"]
    assert changed in [row[1::2] for row in body]
    assert ["… 3 equal lines"] in body


def test_changed_words_are_marked_in_the_colours_of_the_theme(chapters):
    """Legible on light and on dark: no colour of its own for text, no opaque background."""
    html = what_changed(*(chapter.Net for chapter in chapters))._repr_html_()
    marked = [re.sub(r"<[^>]*>", "", words) for words in re.findall(r"<mark>(.*?)</mark>", html)]
    assert marked == ["&lt;", "&gt;"]
    assert "color: var(--jp-mirror-editor-keyword-color)" in html
    assert set(re.findall(r"\bcolor: (inherit|var\(--jp)?", html)) == {"inherit", "var(--jp"}
    assert set(re.findall(r"background: (\w+)", html)) == {"none", "rgba"}


def test_files_of_the_same_name_are_told_apart(tmp_path):
    paths = [tmp_path / folder / "train.py" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("")
    assert all(str(path) in what_changed(*paths).summary for path in paths)


def test_errors_in_plain_words(chapters, tmp_path, monkeypatch):
    one, many = chapters

    def message(thing) -> str:
        with pytest.raises(WorkbookError) as error:
            what_changed(one, thing)
        return str(error.value)

    (tmp_path / "x.ipynb").write_text("{}")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'")
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    for thing in (len, list, sys, many.Net(), None):
        assert "has no Python source file" in message(thing)
    assert "There is no file nowhere.py" in message("nowhere.py")
    assert "is a folder" in message(tmp_path)
    assert "is a notebook" in message(tmp_path / "x.ipynb")
    assert "bytes.py cannot be read" in message(tmp_path / "bytes.py")
    assert "broken.py cannot be read" in message(tmp_path / "broken.py")
    assert "lambda" in message(lambda: None)

    cell = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", cell)
    exec(compile("def f(): pass\nclass C: pass", "<ipython-input-1>", "exec"), cell.__dict__)
    assert "`f` was defined in a notebook cell" in message(cell.f)
    assert "`C` was defined in a notebook cell" in message(cell.C)

    (tmp_path / "many.py").write_text("")
    assert "`train` is no longer in the file" in message(many.train)
    (tmp_path / "many.py").unlink()
    assert "has no Python source file" in message(many.train)
