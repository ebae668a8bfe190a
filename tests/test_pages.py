"""What notebooks and Markdown pages refer to exists; what a notebook imports is meant for it."""

import ast
import re
from pathlib import Path

import pytest

import ddp_workbook
from tests.test_layout import CHECKOUT, NOTEBOOKS, chapter_of, name, notebook, source

PAGES = [*NOTEBOOKS, *sorted(CHECKOUT.glob("*.md")), *sorted(CHECKOUT.glob("data/*.md"))]


def texts(path: Path) -> list[str]:
    """The prose of a page: Markdown cells, or the whole file."""
    if path.suffix == ".md":
        return [path.read_text(encoding="utf-8")]
    return [source(cell) for cell in notebook(path)["cells"] if cell["cell_type"] == "markdown"]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_to_files_that_exist(path):
    """[words](file) and ![words](file), and every picture has its words."""
    for text in texts(path):
        assert not re.search(r"!\[\s*\]\(", text), "a picture without words"
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not target.startswith(("http", "#", "mailto:")):
                assert (path.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_named_files_exist(path):
    """A path in `code` that starts with a folder of the tree."""
    folders = "src|notebooks|tests|tools|data|figs|benchmarks|job_scripts"
    for text in texts(path):
        for target in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
            assert (CHECKOUT / target).exists(), target


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_named_targets_exist(path):
    """`make word` is a target of the Makefile."""
    targets = re.findall(r"(?m)^\.PHONY: (.*)$", (CHECKOUT / "Makefile").read_text())[0].split()
    for text in texts(path):
        assert set(re.findall(r"`make ([a-z-]+)", text)) <= set(targets)


def imported(code: str) -> set[str]:
    """Every module or name of this package that a cell imports, with its module in front."""
    lines = [line for line in code.splitlines() if not line.startswith(("%", "!"))]
    found = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {one for one in found if one.split(".")[0] == "ddp_workbook"}


def is_for(path: Path, one: str) -> bool:
    """Comes through the front door, is the data set or a chapter, or has its chapter's stem."""
    _, room, *rest = one.split(".")
    if room in ("experiments", "figures"):
        return rest[:1] == [chapter_of(path)]
    return room in ("chapters", "digits") or (not rest and room in ddp_workbook.HOMES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_imports_what_is_meant_for_it(path):
    """The front door, digits, chapters, and the experiments and figures of its own chapter."""
    cells = [source(cell) for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]
    assert {one for code in cells for one in imported(code) if not is_for(path, one)} == set()


@pytest.mark.parametrize("home", ddp_workbook.HOMES)
def test_the_front_door_leads_to_every_name(home):
    """Each name of the table is where the table says."""
    assert callable(getattr(ddp_workbook, home))
