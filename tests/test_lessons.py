"""A page is a lesson: its minutes are stated and held, and it begins and ends as the others do."""

import re

import nbformat
import pytest

from ddp_workbook.instructor import minutes
from ddp_workbook.notebook.pages import FURTHER, in_order
from tests.test_layout import CHECKOUT, NOTEBOOKS, name

CORE = [path for path in NOTEBOOKS if FURTHER not in path.stem]
HALF_DAY = [path for path in CORE if path.stem[:2] <= "05"]
AFTER_A_RESTART = "*After a restart of the kernel, choose Run All Above Selected Cell.*"


def page(path) -> nbformat.NotebookNode:
    """The notebook in this file."""
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_page_states_its_minutes(path):
    """For teaching, which test_notebooks.py compares with the computed ones, and for exercises."""
    said = minutes.stated(page(path))
    assert said, "the first cell has no *teaching N min · exercises M min*"
    assert said[1] == minutes.exercises(page(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_room_gets_through_a_page(path):
    """00 is the shortest; no page takes a room more than three quarters of an hour."""
    least, most = (10, 15) if path.stem == "00_start_here" else (10, 45)
    if path in CORE and path.stem != "00_start_here":
        least = 20
    assert least <= sum(minutes.stated(page(path))) <= most


def test_chapters_00_to_05_are_half_a_day():
    """With their exercises, without the further pages."""
    assert sum(sum(minutes.stated(page(path))) for path in HALF_DAY) <= 200


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_the_first_cell_says_what_to_do_after_a_restart(path):
    """A question, and one line for those whose kernel is new."""
    first = page(path).cells[0].source
    further = r"further: " if FURTHER in path.stem else ""
    assert re.match(rf"# {path.stem[:2]} {further}[A-Z0-9]", first)
    assert "**Question:**" in first
    assert first.endswith(AFTER_A_RESTART)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_page_begins_with_what_is_solved(path):
    """Below the imports, and so in the first screen."""
    (imports,) = [cell for cell in page(path).cells[:5] if cell.id == "imports"]
    assert imports.source.endswith("\n\nprogress()")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_page_ends_with_what_it_was_about(path):
    """Common mistakes, one sentence to take home, where to read on, and what is solved."""
    cells = page(path).cells
    assert cells.pop().source == "progress()"
    headings = re.findall(r"(?m)^## (.*)$", cells[-1].source)
    assert headings[-2:] == ["What you can now say", "Read on"]
    assert path not in CORE or path.stem == "00_start_here" or headings[0] == "Common mistakes"
    assert len(re.findall(r"\]\(https://", cells[-1].source.partition("## Read on")[2])) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_the_readme_lists_each_page(path):
    """With its minutes for teaching and for exercises."""
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in readme.splitlines() if f"](notebooks/{path.name})" in line]
    teaching, exercises = minutes.stated(page(path))
    assert f"| {teaching} + {exercises} |" in row


def test_the_readme_lists_them_in_their_order():
    """The chapters' pages in a first table, the further ones in a second."""
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\|.*\]\(notebooks/(\w+)\.ipynb\)", readme)
    assert rows == sorted(rows, key=lambda stem: (FURTHER in stem, in_order(stem)))
