"""The pages of `make book`: complete, and readable without a network."""

import json
import os
import re

import nbformat
import pytest

from tests.small_book import write_small
from tools import book
from tools.book.__main__ import write_book
from tools.book.answers import fold_answers, mark_answers
from tools.book.contents import with_contents
from tools.book.links import broken_links
from tools.book.page import mend_output
from tools.book.search import SCRIPT, entries, search_index


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The cells, executed where their picture can be found; and the folder."""
    path = write_small(tmp_path_factory.mktemp("checkout"))
    return nbformat.writes(book.execute(path)), path.parent


def small_notebook(executed) -> nbformat.NotebookNode:
    """A copy of the notebook."""
    return nbformat.reads(executed[0], as_version=4)


def test_a_page_stands_alone(executed):
    """Outputs, title and pictures are in it; nothing is loaded from anywhere."""
    text = book.page(small_notebook(executed), executed[1])
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
    for output in (printed, shown):
        mend_output(output, tmp_path)
    assert printed.text == "torchrun ../src/x.py"
    assert shown.data["text/plain"] == "../src/y.py"


def test_the_index_names_every_page():
    """A link and a title for each, with their signs escaped; a chapter before its further pages."""
    text = book.index({"02_b": "B", "01_further_a": "A < B", "01_zebra": "Zebra"})
    assert re.findall(r'<a href="(\w+).html">(.*?)</a>', text) == [
        ("01_zebra", "Zebra"), ("01_further_a", "A &lt; B"), ("02_b", "B")
    ]  # fmt: skip
    assert text.count("<ul>") == 2


def test_each_page_has_the_contents_at_its_side(executed):
    """With the open page marked, and the search, which is one file beside the pages."""
    text = with_contents(
        book.page(small_notebook(executed), executed[1]), {"00_a": "A", "01_b": "B"}, "01_b"
    )
    assert '<a href="01_b.html" aria-current="page">B</a>' in text
    assert '<a href="00_a.html">A</a>' in text
    assert f'<script src="{SCRIPT}" defer></script>' in text


# Without answers


def test_hints_and_solutions_are_left_out_and_what_follows_a_prediction_is_folded(executed):
    notebook = small_notebook(executed)
    answers = mark_answers(notebook)
    assert answers == [["tell-shows", "told-answer"], ["sum-shows", "more", "two-answer"]]
    text = fold_answers(book.page(notebook, executed[1]), answers)
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
        asked = sum(cell.source.count("**Predict.**") > 0 for cell in notebook.cells)
        answers = mark_answers(notebook)
        assert len(answers) == asked, path.stem
        assert all(0 < len(ids) < 8 for ids in answers), (path.stem, answers)


# Search


def test_the_search_knows_every_section_and_no_answer(executed):
    notebook = small_notebook(executed)
    hidden = [id for ids in mark_answers(notebook) for id in ids]
    found = entries("01_greeting", notebook, hidden)
    assert {one["heading"] for one in found} == {"01 Meeting & greeting", "A question", "Next"}
    texts = " ".join(one["text"] for one in found)
    assert "hello from a cell" in texts and "nobody knew" not in texts
    script = search_index([*found, {"text": "</script>"}])
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
    pages = [(path.stem, nbformat.read(path, as_version=4)) for path in book.NOTEBOOKS]
    notebooks = book.ROOT / "notebooks"
    assert write_book(tmp_path, pages, notebooks, without_answers=True) == []
    assert len(list(tmp_path.glob("*.html"))) == len(pages) + 1
