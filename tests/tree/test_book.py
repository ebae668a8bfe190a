"""The pages of `make book`: complete, and readable without a network."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest

from ddp_workbook.page import pages
from tests.small_book import write_small
from tools import book
from tools.book import __main__ as command
from tools.book import running
from tools.book.__main__ import write_book
from tools.book.answers import fold_answers, mark_answers
from tools.book.contents import About, with_contents
from tools.book.links import broken_links
from tools.book.page import mend_paths
from tools.book.search import SCRIPT, entries, search_index
from tools.check import Graph

pytestmark = pytest.mark.push("the book")


@pytest.fixture(scope="module")
def executed_page(tmp_path_factory):
    """The cells, executed where their picture can be found; and the folder."""
    path = write_small(tmp_path_factory.mktemp("checkout"))
    return nbformat.writes(running.execute_page(path)), path.parent


def small_notebook(executed_page) -> nbformat.NotebookNode:
    """A copy of the notebook."""
    return nbformat.reads(executed_page[0], as_version=4)


def test_a_page_stands_alone(executed_page):
    """Outputs, title and pictures are in it; nothing is loaded from anywhere."""
    text = book.page(small_notebook(executed_page), executed_page[1])
    assert "hello from a cell" in text
    assert "<title>01 Meeting &amp; greeting</title>" in text
    assert 'href="00_start_here.html"' in text and 'href="05_collectives.html"' in text
    assert "a file (<code>src/x.py</code>)" in text, "what is not in the book is no link"
    assert "<kbd>Enter</kbd>" in text and 'alt="a red square"' in text
    assert "<b>second</b>" in text, "every picture of a slider"
    assert "progress" in text and "Exercises of" not in text, "a book's reader has solved nothing"
    assert not re.search(r"https?://[^\s\x27\x22]+\.js\b", text) and "widget-view" not in text
    loaded = re.findall(r'<(?:script|img|link)\b[^>]*?\b(?:src|href)="([^"]+)"', text)
    assert loaded
    assert [target[:40] for target in loaded if not target.startswith("data:")] == []


def test_paths_in_outputs_are_those_of_a_checkout(tmp_path):
    """The pages are executed in a copy of their folder, from which src is somewhere else."""
    src = os.path.relpath(book.ROOT / "src", tmp_path)
    printed = nbformat.v4.new_output("stream", text=f"torchrun {src}/x.py")
    shown = nbformat.v4.new_output("display_data", {"text/plain": f"{src}/y.py"})
    cell = nbformat.v4.new_code_cell(outputs=[printed, shown])
    mend_paths(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    printed, shown = cell.outputs
    assert printed.text == "torchrun ../src/x.py"
    assert shown.data["text/plain"] == "../src/y.py"


def test_the_index_names_every_page():
    """With its minutes and a sentence, signs escaped; a chapter before its further pages."""
    known = About("5 + 3 min", "a < b in `c`", "2 May 2026", "2 cores")
    other = About("", "", "3 May 2026", "2 cores")
    text = book.index(
        {"02_b": "B", "01_further_a": "A < B", "01_zebra": "Zebra"},
        {"02_b": known, "01_further_a": known, "01_zebra": other},
    )
    assert re.findall(r'<a href="(\w+).html">(.*?)</a>', text) == [
        ("01_zebra", "Zebra"), ("01_further_a", "A &lt; B"), ("02_b", "B")
    ]  # fmt: skip
    assert text.count("<ul>") == 2
    assert text.count("<small>5 + 3 min. A &lt; b in <code>c</code></small>") == 2
    assert "Run on 2 May 2026, on 2 cores: 02_b, 01_further_a." in text
    assert "Run on 3 May 2026, on 2 cores: 01_zebra." in text


def test_each_page_has_the_contents_at_its_side(executed_page):
    """With the open page marked, and the search, which is one file beside the pages."""
    text = with_contents(
        book.page(small_notebook(executed_page), executed_page[1]),
        {"00_a": "A", "01_b": "B"},
        "01_b",
    )
    assert '<a href="01_b.html" aria-current="page">B</a>' in text
    assert '<a href="00_a.html">A</a>' in text
    assert f'<script src="{SCRIPT}" defer></script>' in text


# A build


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Three pages to build, of which the last two import a module; executed are those in `.ran`."""
    root = tmp_path / "checkout"
    cells = {"00_a": "1", "01_b": "from ddp_workbook.half import x", "02_c": "import ddp_workbook"}
    (root / "notebooks").mkdir(parents=True)
    (root / "src" / "ddp_workbook").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "table.csv").write_text("1")
    (root / "src" / "ddp_workbook" / "half.py").write_text("x = 1  # table.csv\n")
    for stem, code in cells.items():
        text = f"# {stem}\n*teaching 4 min · exercises 2 min*\n\n[next](01_b.ipynb#cell-id=code)"
        made = [nbformat.v4.new_markdown_cell(text, id="title")]
        made.append(nbformat.v4.new_code_cell(code, id="code"))
        notebook = nbformat.v4.new_notebook(cells=made)
        nbformat.write(notebook, root / "notebooks" / f"{stem}.ipynb")
    executed_pages = []

    def execute_page(path):
        notebook = nbformat.read(path, as_version=4)
        executed_pages.append(path.stem)
        if "stop" in notebook.cells[1].source:
            raise KeyboardInterrupt
        error = nbformat.v4.new_output("error", ename="E", evalue="no", traceback=["no"])
        notebook.cells[1].outputs = [error] if "fail" in notebook.cells[1].source else []
        return notebook

    for module, name, value in (
        (pages, "FOLDER", root / "notebooks"),
        (pages, "CHECKOUT", root),
        (running, "ROOT", root),
        (running, "execute_page", execute_page),
        (running, "Graph", lambda: Graph(root)),
        (command, "ROOT", root),
        (command, "BUILD", root / "build"),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(
        command, "run_all", lambda *args, **fresh: running.run_all(*args, root / "kept", **fresh)
    )
    return Checkout(root, executed_pages)


@dataclass
class Checkout:
    root: Path
    ran: list[str]

    def build(self, *words: str) -> tuple[int, list[str]]:
        """The exit code, and the pages that were executed for it."""
        self.ran.clear()
        return command.main(list(words)), [*self.ran]

    def add(self, stem: str, code: str) -> None:
        """Put code into the page."""
        path = self.root / "notebooks" / f"{stem}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[1].source += f"\n{code}"
        nbformat.write(notebook, path)

    def books(self) -> dict[str, str]:
        """All files of both books, by name."""
        paths = sorted((self.root / "build").glob("book*/*.*"))
        return {f"{path.parent.name}/{path.name}": path.read_text() for path in paths}


def test_one_execution_makes_both_books_and_what_has_not_changed_is_not_run_again(checkout):
    """A page, a module that it imports, or data that this names."""
    assert checkout.build() == (0, ["00_a", "01_b", "02_c"])
    first = checkout.books()
    assert {one.partition("/")[0] for one in first} == {"book", "book_without_answers"}
    assert checkout.build() == (0, [])
    assert checkout.books() == first
    checkout.add("02_c", "y = 1")
    assert checkout.build() == (0, ["02_c"])
    (checkout.root / "src" / "ddp_workbook" / "half.py").write_text("x = 2  # table.csv\n")
    assert checkout.build() == (0, ["01_b"])
    (checkout.root / "data" / "table.csv").write_text("2")
    assert checkout.build() == (0, ["01_b"])
    (checkout.root / "kept" / "00_a.ipynb").write_text("half of a no")
    assert checkout.build() == (0, ["00_a"])
    assert checkout.build("--fresh") == (0, ["00_a", "01_b", "02_c"])
    assert sorted(path.name for path in (checkout.root / "build").iterdir()) == [
        "book", "book_without_answers"
    ]  # fmt: skip


def test_chosen_pages_link_to_each_other_only_and_leave_the_book_alone(checkout, capsys):
    assert checkout.build()[0] == 0
    whole = checkout.books()
    assert checkout.build("--pages", "00", "02") == (0, [])
    assert {name: checkout.books()[name] for name in whole} == whole
    files = checkout.books()
    assert [file for file in files if "chosen" in file and "01_b" in file] == []
    chosen = "book_chosen/00_a.html"
    assert "01_b" not in files[chosen] and "next" in files[chosen]
    assert checkout.build("--pages", "00", "01") == (0, [])
    assert 'href="01_b.html#cell-id=code"' in checkout.books()[chosen]
    before = checkout.books()
    assert checkout.build("--pages", "77") == (2, [])
    assert "There is no page called '77'" in capsys.readouterr().err
    assert checkout.books() == before


def test_a_build_that_is_stopped_or_fails_leaves_the_earlier_book(checkout, monkeypatch, capsys):
    """And continues where it stopped."""
    checkout.build()
    before = checkout.books()
    checkout.add("00_a", "1")
    checkout.add("01_b", "stop")
    with pytest.raises(KeyboardInterrupt):
        checkout.build()
    assert checkout.books() == before
    checkout.add("01_b", "fail")
    notebook = checkout.root / "notebooks" / "01_b.ipynb"
    notebook.write_text(notebook.read_text().replace("stop", ""))
    assert checkout.build() == (1, ["01_b"])
    output = capsys.readouterr().out
    assert "01_b.ipynb: cell code: E: no" in output and "book_with_errors" in output
    assert {name: text for name, text in checkout.books().items() if name in before} == before
    assert (checkout.root / "build/book_with_errors/book/01_b.html").is_file()
    notebook.write_text(notebook.read_text().replace("fail", ""))

    def killed(new, place):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command.shutil, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            checkout.build()
    assert {name: text for name, text in checkout.books().items() if name in before} == before
    (checkout.root / "build/book").rename(checkout.root / "build/book.earlier")  # kill -9
    assert checkout.build() == (0, [])
    assert not (checkout.root / "build/book.earlier").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_an_execution_that_is_stopped_says_so_and_ends_its_kernel(tmp_path, number):
    path = write_small(tmp_path)
    cell = "import os, time; print(os.getpid(), file=open('pid', 'w'), flush=True); time.sleep(60)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    nbformat.write(notebook, path)
    code = f"""
from pathlib import Path
from ddp_workbook.workshop.execution import execute
try:
    execute(Path({str(path)!r}))
except KeyboardInterrupt:
    print("stopped")
"""
    pid = path.parent / "pid"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        while not (pid.is_file() and pid.read_text()):
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(number)
        assert run.communicate(timeout=30)[0] == "stopped\n"
    assert not psutil.pid_exists(int(pid.read_text()))


def test_one_that_is_stopped_as_its_last_cell_ends_says_so_too(tmp_path):
    """It could look like a whole one: its kernel has done all cells."""
    code = f"""
import os, signal
from pathlib import Path
from nbclient import NotebookClient
from ddp_workbook.workshop.execution import execute

async def last_one(*args, execute_cell=NotebookClient.async_execute_cell, **kwargs):
    await execute_cell(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGINT)

NotebookClient.async_execute_cell = last_one
try:
    execute(Path({str(write_small(tmp_path))!r}))
except KeyboardInterrupt:
    print("stopped")
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "stopped\n"


def test_a_player_shows_its_stills(tmp_path):
    """All in the page; on paper the first and the last, each with what was chosen."""
    path = write_small(tmp_path)
    notebook = nbformat.read(path, as_version=4)
    code = (
        "from ddp_workbook import play\n"
        "from IPython.display import HTML\n"
        "play(lambda late: late, lambda found, late: HTML(f'<b>waited {found}</b>'), ranks=None,"
        " late=[0, 1, 2], stills=[{'late': 1}, {'late': 2}])"
    )
    notebook.cells = [notebook.cells[0], nbformat.v4.new_code_cell(code, id="player")]
    nbformat.write(notebook, path)
    text = book.page(running.execute_page(path), path.parent)
    frames = re.findall(r'(?s)<div class="ddpw-frame([^"]*)">.*?<b>(waited \d)</b>', text)
    assert frames == [
        (" ddpw-printed", "waited 0"), ("", "waited 1"), (" ddpw-printed", "waited 2")
    ]  # fmt: skip
    assert text.count('type="radio"') == 3 and "widget-view" not in text


# Without answers


def test_hints_and_solutions_are_left_out_and_what_follows_a_prediction_is_folded(executed_page):
    notebook = small_notebook(executed_page)
    answers = mark_answers(notebook)
    assert answers == [["tell-shows", "told-answer"], ["sum-shows", "more", "two-answer"]]
    text = fold_answers(book.page(notebook, executed_page[1]), answers)
    assert "hint(" not in text and "solution(" not in text
    folds = re.findall(r'(?s)<details class="answer">(.*?)</details>', text)
    assert len(folds) == 2
    assert "which nobody knew" in folds[0] and "Next" not in folds[0]
    assert "Two." in folds[1]
    visible = re.sub(r'(?s)<details class="answer">.*?</details>', "", text)
    assert "nobody knew" not in visible and "And now?" in visible and "A question" in visible
    code = re.sub(r"<[^>]*>", "", visible)
    assert "print('the', 'answer')" in code and "1 + 1" in code, "the question is about this"
    assert "the answer" not in code and "print('and', 'more')" not in code


def test_every_prediction_of_the_workbook_has_something_to_fold():
    """Cells that it asks about, and the text that explains them, which comes soon."""
    for path in book.NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        asked = sum(bool(pages.PREDICT_CALL.match(cell.source)) for cell in notebook.cells)
        answers = mark_answers(notebook)
        assert len(answers) == asked, path.stem
        assert all(0 < len(ids) < 8 for ids in answers), (path.stem, answers)


# Search


def test_the_search_knows_every_section_and_no_answer(executed_page):
    notebook = small_notebook(executed_page)
    hidden = [id for ids in mark_answers(notebook) for id in ids]
    result = entries("01_greeting", notebook, hidden)
    assert {section["heading"] for section in result} == {
        "01 Meeting & greeting",
        "A question",
        "Next",
    }
    texts = " ".join(section["text"] for section in result)
    assert "hello from a cell" in texts and "nobody knew" not in texts
    script = search_index([*result, {"text": "</script>"}])
    assert "</script>" not in script
    written = script.partition("const TEXTS = ")[2].partition(";\n")[0]
    assert json.loads(written.replace("<\\/", "</"))[0]["page"] == "01_greeting"


# Links


def test_links_that_lead_nowhere_are_named(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h2 id="x&amp;y"></h2><a href="#x%26y"></a><a href="b.html#here"></a>'
        '<a href="b.html#gone"></a><a href="c.html"></a><a href="https://a.example/#no"></a>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="a.html"></a>')
    assert broken_links(tmp_path) == [
        "a.html: there is no place b.html#gone",
        "a.html: there is no file c.html",
    ]


@pytest.mark.release("the whole book")
def test_every_link_between_the_pages_leads_somewhere(tmp_path):
    """In the whole book without answers; the pages are not executed for it."""
    unrun = [(path.stem, nbformat.read(path, as_version=4)) for path in book.NOTEBOOKS]
    assert write_book(tmp_path, unrun, without_answers=True) == []
    assert len(list(tmp_path.glob("*.html"))) == len(unrun) + 1
