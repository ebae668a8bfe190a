"""The tables of questions: each is asked on its page, before its answer, and can be answered."""

import re

import pytest

from ddp_workbook.page import pages, questions
from ddp_workbook.page.pages import PREDICT_CALL, source

PAGES = pages.all_pages()
QUESTIONS = questions.all_questions()
REVEALED = re.compile(r'\breveal\(\s*"(\w+)"|^%%ranks .*--reveal (\w+)')
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)


def cells(path, kind="code") -> list[str]:
    """The sources of a page's cells."""
    found = pages.load(path)["cells"]
    return [source(cell).strip() for cell in found if cell["cell_type"] == kind]


def names(path) -> list[tuple[str, str]]:
    """("asked" or "shown", name) in the order of the page."""
    found = []
    for text in cells(path):
        if match := PREDICT_CALL.match(text):
            found.append(("asked", match[1]))
        found += [("shown", one or other) for one, other in REVEALED.findall(text)]
    return found


@each_page
def test_a_page_asks_its_questions_in_the_order_of_its_table_and_shows_each_answer_later(path):
    found = names(path)
    asked = [name for kind, name in found if kind == "asked"]
    assert asked == list(questions.of_page(path.stem))
    assert sorted(name for kind, name in found if kind == "shown") == sorted(asked)
    assert [
        name for name in asked if found.index(("asked", name)) > found.index(("shown", name))
    ] == []
    # in the text nobody can click, and no guess is kept
    assert [text for text in cells(path, "markdown") if "**Predict" in text] == []


def test_no_table_is_without_its_page_and_no_name_stands_in_two():
    stems = {path.stem for path in PAGES}
    tables = [path.stem for path in questions.FOLDER.glob("*/*.toml")]
    assert {stem for stem in tables if stem not in stems} == set()
    assert len(QUESTIONS) == sum(len(questions.of_page(stem)) for stem in tables)


@each_page
def test_its_questions_can_be_read_without_a_kernel(path):
    """Below the call, in a cell that JupyterLab folds; `--sync` writes them."""
    for cell in pages.load(path)["cells"]:
        if match := PREDICT_CALL.match(source(cell)):
            assert source(cell) == questions.find(match[1]).cell
            assert cell["metadata"]["jupyter"] == {"source_hidden": True}


@each_page
def test_its_questions_can_be_answered(path):
    """A right answer among two to five choices that differ, or a number.

    What the table does not know, the page measures.
    """
    code = "\n".join(cells(path))
    for name, question in questions.of_page(path.stem).items():
        assert question.ask.endswith("?") and (question.because or ".").endswith("."), name
        choices = question.choices
        assert not choices or 2 <= len(set(choices)) == len(choices) <= 5, name
        assert not (choices and question.unit), name
        assert not any(choice.endswith(".") for choice in choices), name
        if question.right is None:
            assert re.search(rf'\breveal\(\s*"{name}",\s*\S', code), name
        else:
            assert question.answer(question.right) == question.right, name
            assert isinstance(question.right, str) == bool(choices), name
