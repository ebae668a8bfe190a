"""The pages of `make book`: complete, and readable without a network."""

import dataclasses
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from matplotlib.figure import Figure

from ddp_workbook.page import pages
from manyranks.figures.style import Picture
from tests.small_book import write_small
from tools import book
from tools.book import __main__ as command
from tools.book import running
from tools.book.__main__ import write_book
from tools.book.answers import fold_answers, mark_answers
from tools.book.frame import CSS, JS, About, neighbours, with_frame
from tools.book.front import front
from tools.book.links import broken_links
from tools.book.page import headings, mend_paths, of_document
from tools.book.pictures import card, small
from tools.book.search import entries, search_index
from tools.book.site import DOCUMENTS, Site
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


def small_page(executed_page, notebook=None, site=None) -> str:
    """Its part of the page in the book, with all pages of the workbook beside it."""
    notebook = notebook or small_notebook(executed_page)
    return book.page("01_greeting", notebook, executed_page[1], site=site)


def test_a_page_has_all_that_it_shows(executed_page):
    """Outputs, title and pictures are in it; the imports are folded, what scripts need is gone."""
    text = small_page(executed_page)
    assert "hello from a cell" in text
    assert 'href="00_start_here.html"' in text and 'href="05_collectives.html"' in text
    assert "a file (<code>src/x.py</code>)" in text, "what is not in the checkout is no link"
    assert "<kbd>Enter</kbd>" in text and 'alt="a red square"' in text
    assert "<b>second</b>" in text, "every picture of a slider"
    assert "progress" in text and "Exercises of" not in text, "a book's reader has solved nothing"
    assert "widget-view" not in text and "<script" not in text
    pictures = re.findall(r'<img\b[^>]*?\bsrc="([^"]+)"', text)
    assert pictures and all(target.startswith("data:") for target in pictures)
    folds = re.findall(r'(?s)<details class="imports">(.*?)</details>', text)
    assert len(folds) == 1 and "load_ext" in re.sub(r"<[^>]*>", "", folds[0])


def test_links_lead_to_the_files_themselves(executed_page):
    """To copies in the book, or to the repository, at the line that a cell shows."""

    def text(site: Site) -> str:
        source = "[run](../tools/set_up.py), `data/README.md`, [all](../tools)"
        cells = [nbformat.v4.new_markdown_cell("# 01"), nbformat.v4.new_markdown_cell(source)]
        listing = "<div>src/manyranks/errors.py, from line 12</div><pre>class</pre>"
        output = nbformat.v4.new_output("display_data", {"text/html": listing})
        cells.append(nbformat.v4.new_code_cell("show_code(x)", outputs=[output]))
        return small_page(executed_page, nbformat.v4.new_notebook(cells=cells), site)

    here = text(Site())
    assert '<a href="sources/tools/set_up.py">run</a>' in here
    assert '<code><a href="sources/data/README.md">data/README.md</a></code>' in here
    assert '<a href="sources/src/manyranks/errors.py">' in here
    assert "all (<code>tools</code>)" in here
    there = "https://a.example/r"
    assert f'<a href="{there}/blob/c0ffee/src/manyranks/errors.py#L12">' in text(
        Site("", there, "c0ffee")
    )


def test_a_document_keeps_the_places_that_its_links_name(executed_page):
    """GitHub's names of headings, which differ from nbconvert's."""
    text = "# A\n\n[page](INSTALL.md)\n\n## Is it `wrong` with %%ranks?\n"
    main = book.page("tools", of_document(text), executed_page[1], {"tools", "install"})
    assert headings(main) == [
        (2, "is-it-wrong-with-ranks", "Is it <code>wrong</code> with %%ranks?")
    ]
    assert '<a href="install.html">page</a>' in main


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


def page_about(title: str, day: str = "2 May 2026", **others: bool) -> About:
    """What is known of a page."""
    known = About(title, "Is a < b in `c`?", "5 + 3 min", day, "2 cores", "0.9 (abc)", False)
    return dataclasses.replace(known, **others)


def test_the_front_has_a_card_for_each_chapter():
    """Number, title, question, minutes and picture; further pages in it; signs escaped."""
    text = front(
        {
            "02_b": page_about("02 B"),
            "01_further_a": page_about("A < B"),
            "01_zebra": page_about("01 Zebra", day="3 May 2026", old=True),
        },
        {"01_zebra"},
        Site(),
    )
    cards = re.findall(r'(?s)<li class="card">(.*?)(?=<li class="card">|</section>)', text)
    links = [re.findall(r'<a href="(\w+).html">(.*?)</a>', one) for one in cards]
    assert links == [[("01_zebra", "Zebra"), ("01_further_a", "A &lt; B")], [("02_b", "B")]]
    assert text.count("<p>Is a &lt; b in <code>c</code>?</p>") == 2 and "5 + 3 min" in cards[1]
    assert 'src="pictures/01_zebra.svg"' in cards[0] and "<img" not in cards[1]
    assert "earlier edition" in cards[0] and "earlier edition" not in cards[1]
    old = re.search(r'(?s)<section class="old">.*?</section>', text)[0]
    assert "01 Zebra</a>: edition 0.9 (abc) of 3 May 2026" in old and "02 B" not in old
    assert "Run on 2 May 2026, on 2 cores." in text and "Run on 3 May 2026" in text
    assert front({"02_b": page_about("02 B")}, set(), Site()).count('class="old"') == 0


def test_the_front_tells_what_is_in_the_tree():
    """The two commands, the recorded run with its report, and an output of every tool."""
    text = front({"00_a": page_about("00 A")}, set(), Site(repository="https://a.example/r"))
    plain = html.unescape(re.sub(r"<[^>]+>", " ", text))
    for line in (book.ROOT / "README.md").read_text().partition("```\n")[2].splitlines()[:3]:
        command = line.partition("# ")[0].strip()
        assert command.replace("ADDRESS", "https://a.example/r") in plain
    run = json.loads((book.ROOT / "data/readme_run.json").read_text())
    for line in run["report"]:
        assert " ".join(line.split()) in " ".join(plain.split())
    documents = (book.ROOT / "TOOLS.md").read_text()
    outputs = re.findall(r'(?s)<pre tabindex="0"[^>]*>(.*?)</pre>', text)
    assert len(outputs) == 6
    for output in outputs:
        assert all(part in documents for part in html.unescape(output).split("\n\n"))


def test_a_page_stands_in_its_frame(executed_page):
    """The open page is marked, headings and next pages are named, all comes from this folder."""
    main = small_page(executed_page)
    stems = ["00_a", "01_greeting", "01_further_b", "02_c"]
    known = {stem: page_about(stem) for stem in stems}
    text = with_frame(main, known, "01_greeting", Site())
    assert '<a href="01_greeting.html" aria-current="page">01_greeting</a>' in text
    side = re.search(r'(?s)<nav class="page-contents".*?</nav>', text)[0]
    assert [name for _, _, name in headings(main)] == re.findall(
        r'<a href="#[^"]+">(.*?)</a>', side
    )
    onward = re.search(r'(?s)<nav class="onward".*?</nav>', text)[0]
    assert re.findall(r'href="(\w+)', onward) == ["01_further_b", "00_a", "02_c"]
    assert neighbours("01_further_b", stems) == ("01_greeting", "02_c")
    assert neighbours("00_a", stems) == ("", "01_greeting")
    loaded = re.findall(r'<(?:script|img|link)\b[^>]*?\b(?:src|href)="([^"]+)"', text)
    assert {target for target in loaded if not target.startswith("data:")} == {CSS, JS}


def test_what_others_show_of_a_page(executed_page):
    """Whole addresses, only where the book's own is known; a question may have any sign in it."""
    known = {"01_greeting": page_about("A & B")}
    main = small_page(executed_page)
    text = with_frame(main, known, "01_greeting", Site("https://a.example/b"))
    assert "<title>A &amp; B · The Distributed PyTorch Workbook</title>" in text
    assert '<meta name="description" content="Is a &lt; b in c?">' in text
    address = "https://a.example/b/01_greeting.html"
    assert f'<link rel="canonical" href="{address}">' in text
    assert '<meta property="og:image" content="https://a.example/b/cards/01_greeting.png">' in text
    without = with_frame(main, known, "01_greeting", Site())
    assert "canonical" not in without and "og:image" not in without and "og:title" in without
    picture = card("Book", "What costs $5 and $6?", "A title")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n" and len(picture) < 100_000
    assert picture[16:24] == (1200).to_bytes(4, "big") + (630).to_bytes(4, "big")


def test_a_small_picture_is_the_same_picture():
    """Its words as text, a fraction of the bytes."""
    figure = Figure(figsize=(4, 2))
    axes = figure.subplots()
    axes.plot([1, 2, 3], [1, 4, 9])
    axes.set_title("What a step costs", fontweight="bold")
    svg = Picture(figure, "A line.").svg
    text = small(svg)
    assert len(text) < len(svg) / 2
    root = ET.fromstring(text)
    words = {element.text: element for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "What a step costs" in words and {"1.0", "2.0", "3.0"} < words.keys()
    assert words["What a step costs"].get("font-weight") == "bold"
    ids = {element.get("id") for element in root.iter()}
    assert set(re.findall(r"#([\w-]+)\)", text)) <= ids, "clip paths are still there"


# A build


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Three pages to build, of which the last two import a module; executed are those in `.ran`."""
    root = tmp_path / "checkout"
    cells = {"00_a": "1", "01_b": "from ddp_workbook.half import x", "02_c": "import ddp_workbook"}
    (root / "notebooks").mkdir(parents=True)
    (root / "src" / "ddp_workbook").mkdir(parents=True)
    (root / "data").mkdir()
    for file in DOCUMENTS.values():
        shutil.copy(book.ROOT / file, root)
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
        """All pages and scripts of both books, by name."""
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


def test_a_build_that_is_stopped_leaves_the_earlier_book(checkout, monkeypatch):
    """And continues where it stopped."""
    checkout.build()
    before = checkout.books()
    checkout.add("00_a", "1")
    checkout.add("01_b", "stop")
    with pytest.raises(KeyboardInterrupt):
        checkout.build()
    assert checkout.books() == before
    notebook = checkout.root / "notebooks" / "01_b.ipynb"
    notebook.write_text(notebook.read_text().replace("stop", ""))
    assert checkout.build() == (0, ["01_b"])
    before = checkout.books()

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


def test_a_page_that_fails_stays_as_it_was_and_the_front_says_so(checkout, capsys):
    """Others are new; as it is now, it can be looked at; without an earlier one, all stay."""
    checkout.build()
    before = checkout.books()
    checkout.add("00_a", "y = 'new'")
    checkout.add("01_b", "fail")
    assert checkout.build() == (1, ["00_a", "01_b"])
    output, books = capsys.readouterr().out, checkout.books()
    assert "01_b.ipynb: cell code: E: no" in output and "as they were" in output
    assert "new" in books["book/00_a.html"] and "fail" not in books["book/01_b.html"]
    assert "This page is of an earlier edition" in books["book/01_b.html"]
    assert '<a href="01_b.html">01_b</a>: edition' in books["book/index.html"]
    assert "This page is of an earlier edition" not in books["book/00_a.html"]
    new = (checkout.root / "build/book_with_errors/book/01_b.html").read_text()
    assert "fail" in new and "This page is of an earlier edition" not in new
    (checkout.root / "kept" / "01_b.ipynb").unlink()
    assert checkout.build() == (1, ["01_b"])
    assert "an earlier one was not replaced" in capsys.readouterr().out
    assert {name: text for name, text in checkout.books().items() if name in books} == books
    notebook = checkout.root / "notebooks" / "01_b.ipynb"
    notebook.write_text(notebook.read_text().replace("fail", ""))
    assert checkout.build() == (0, ["01_b"])
    assert checkout.books()["book/01_b.html"] == before["book/01_b.html"]


def test_only_pages_that_depend_on_a_change_are_built(checkout, capsys):
    """Since a commit; where none does, the first, which shows how all of them look."""
    git = ["git", "-C", str(checkout.root), "-c", "user.name=a", "-c", "user.email=a@b"]

    def commit() -> None:
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "x"], check=True)

    subprocess.run([*git, "init", "-q"], check=True)
    commit()
    (checkout.root / "src" / "ddp_workbook" / "half.py").write_text("x = 2  # table.csv\n")
    commit()
    assert checkout.build("--changed", "HEAD~1") == (0, ["01_b"])
    (checkout.root / "data" / "table.csv").write_text("2")
    commit()
    assert checkout.build("--changed", "HEAD~1") == (0, ["01_b"])
    (checkout.root / "other.txt").write_text("")
    commit()
    assert checkout.build("--changed", "HEAD~1") == (0, ["00_a"])
    assert checkout.build("--changed", "nothing") == (2, [])
    assert "nothing" in capsys.readouterr().err


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
    text = book.page("01_greeting", running.execute_page(path), path.parent)
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
    text = fold_answers(small_page(executed_page, notebook), answers)
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
    pages_of_the_book = len(unrun) + len(DOCUMENTS) + len(["index", "404"])
    assert len(list(tmp_path.glob("*.html"))) == pages_of_the_book
