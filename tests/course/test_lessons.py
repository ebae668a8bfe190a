"""A page is a lesson: its minutes are stated and held, and it begins and ends as the others do."""

import re

import nbformat
import pytest

from ddp_workbook.page.pages import FURTHER, all_pages, in_order
from ddp_workbook.page.questions import find
from ddp_workbook.workshop import minutes
from tools.set_up import ROOT

NOTEBOOKS = all_pages()
CORE = [path for path in NOTEBOOKS if FURTHER not in path.stem]


def page(path) -> nbformat.NotebookNode:
    """The notebook in this file."""
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_is_long_enough_for_a_lesson(path):
    """What is too long is refused by tools/minutes.py; 00 is the shortest."""
    least = 20 if path in CORE and path.stem != "00_start_here" else 10
    assert least <= sum(minutes.stated_minutes(page(path)))
    assert path.stem != "00_start_here" or sum(minutes.stated_minutes(page(path))) <= 18


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_begins_and_ends_as_the_others_do(path):
    """Begins with a question, a line for those whose kernel is new, and folded imports.

    Ends with common mistakes, one sentence to take home, where to read on, and what is solved.
    """
    cells = page(path).cells
    further = r"further: " if FURTHER in path.stem else ""
    assert re.match(rf"# {path.stem[:2]} {further}[A-Z0-9]", cells[0].source)
    assert "**Question:**" in cells[0].source
    restart = "*After a restart of the kernel, choose Run All Above Selected Cell.*"
    assert cells[0].source.endswith(restart)
    (imports,) = [cell for cell in cells[:5] if cell.id == "imports"]  # in the first screen
    assert imports.source.startswith("%load_ext ddp_workbook\n")
    assert imports.metadata["jupyter"] == {"source_hidden": True}
    assert cells.pop().source == "progress()"
    headings = re.findall(r"(?m)^## (.*)$", cells[-1].source)
    assert headings[-2:] == ["What you can now say", "Read on"]
    assert path not in CORE or path.stem == "00_start_here" or headings[0] == "Common mistakes"
    assert len(re.findall(r"\]\(https://", cells[-1].source.partition("## Read on")[2])) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_answer_is_said_once(path):
    """The line that comments on a guess and the text below it share no more than four words."""
    cells = page(path).cells
    repeated = []
    for number, cell in enumerate(cells):
        for name in re.findall(r"(?:reveal\(\s*\"|--reveal )(\w+)", cell.source):
            text = next((one.source for one in cells[number:] if one.cell_type == "markdown"), "")
            said = words(find(name).because)
            below = " ".join(["", *words(text), ""])
            runs = [said[n : n + 5] for n in range(len(said) - 4)]
            repeated += [(name, *run) for run in runs if f" {' '.join(run)} " in below]
    assert repeated == []


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_']+", text.lower())


@pytest.mark.parametrize("further", [False, True])
def test_a_table_lists_every_page_with_its_minutes(further):
    """In their order: the chapters' pages in README.md, the further ones in their own folder's."""
    path = ROOT / "notebooks" / "further" / "README.md" if further else ROOT / "README.md"
    link = r"\]\((?:notebooks/)?(\w+)\.ipynb\)"
    rows = re.findall(rf"(?m)^\|.*{link} \| \d+ \+ \d+ \|", path.read_text(encoding="utf-8"))
    stems = [path.stem for path in NOTEBOOKS if (FURTHER in path.stem) == further]
    assert rows == sorted(stems, key=in_order)
