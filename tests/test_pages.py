"""What notebooks and Markdown pages refer to exists: files, folders, targets of the Makefile."""

import re
from pathlib import Path

import pytest

from tests.test_layout import CHECKOUT, NOTEBOOKS, name, notebook, source

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
