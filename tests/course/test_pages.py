"""What notebooks and Markdown pages refer to exists; what a notebook imports is meant for it."""

import ast
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import ddp_workbook
from ddp_workbook import former_names
from ddp_workbook.page import pages
from ddp_workbook.page.pages import CHECKOUT, source
from tests.cells import python_of

NOTEBOOKS = pages.all_pages()
MARKDOWN = sorted(
    path
    for folder in ("", "data/", "notebooks/", "notebooks/further/")
    for path in CHECKOUT.glob(f"{folder}*.md")
)
LIMIT = 20  # seconds for one request
AT_ONCE = 8  # requests; more from one address look like an attack to some sites
# A JupyterLab or TensorBoard of the reader's own, an instructor's room
HERE = {"localhost", "127.0.0.1", "192.168.1.20"}
# some sites refuse Python's own name
HEADERS = {"User-Agent": "Mozilla/5.0 (ddp-workbook; checks the links of its pages)"}
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
each_page = pytest.mark.parametrize(
    "path", [*NOTEBOOKS, *MARKDOWN], ids=lambda path: str(path.relative_to(CHECKOUT))
)


@cache
def cells(path: Path, kind: str) -> list[str]:
    """The texts of a notebook's cells of this kind."""
    return [source(cell) for cell in pages.load(path)["cells"] if cell["cell_type"] == kind]


def text(path: Path) -> str:
    """The prose of a page."""
    return path.read_text("utf-8") if path.suffix == ".md" else "\n\n".join(cells(path, "markdown"))


def anchors(path: Path) -> list[str]:
    """Of a Markdown file's headings, as code hosts make them."""
    headings = re.findall(r"(?m)^#+ (.*)$", path.read_text("utf-8"))
    return [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]


@each_page
def test_links_lead_to_a_file_or_a_cell(path):
    """[words](file) and ![words](file), and every picture has its words."""
    assert not re.search(r"!\[\s*\]\(", text(path)), "a picture without words"
    for link in re.findall(r"\]\(([^)\s]+)\)", text(path)):
        target, _, fragment = link.partition("#")
        if link.startswith(("http", "mailto:")) or (path.suffix != ".md" and not target):
            continue
        if fragment and (path.parent / target).suffix in ("", ".md"):
            assert fragment in anchors(path.parent / target if target else path), link
        assert (path.parent / target).exists(), link
        if fragment.startswith("cell-id="):  # JupyterLab's form
            ids = [f"cell-id={cell['id']}" for cell in pages.load(path.parent / target)["cells"]]
            assert fragment in ids


@each_page
def test_named_files_and_targets_exist(path):
    """A path in `code` below a folder of the tree, and `make word`."""
    folders = "src|notebooks|tests|tools|data|figs|benchmarks|job_scripts"
    for target in re.findall(rf"`(?!notebooks/work)((?:{folders})/[\w./-]+)`", text(path)):
        assert (CHECKOUT / target).exists(), target
    targets = re.findall(r"(?m)^\.PHONY: (.*)$", (CHECKOUT / "Makefile").read_text())[0].split()
    assert set(re.findall(r"`make ([a-z-]+)", text(path))) <= set(targets)


# What a notebook imports


def imported_names(code: str) -> set[str]:
    """Every module or name of this package that a cell imports, with its module in front."""
    found = set()
    for node in ast.walk(ast.parse(python_of(code))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {f"{module}{alias.name}" for alias in node.names}
    return {one for one in found if one.split(".")[0] == "ddp_workbook"}


def is_for(path: Path, one: str) -> bool:
    """Comes through the front door, is common to the chapters, or has its chapter's stem."""
    _, room, *rest = one.split(".")
    if room in ("experiments", "figures"):
        return rest[:1] == [pages.find_pages([path.stem[:2]])[0].stem[3:]]
    return room in ("chapters", "program") or (not rest and room in ddp_workbook.__all__)


@each_notebook
def test_a_notebook_imports_what_is_meant_for_it(path):
    """The front door, chapters, the program that grows with them, its own experiments."""
    names = set().union(*map(imported_names, cells(path, "code")))
    assert {one for one in names if not is_for(path, one)} == set()


def test_the_front_door_leads_to_every_name():
    """Each listed name is where the list says, and what pages called it before leads there, too."""
    names = {*ddp_workbook.__all__, *former_names.NAMES}
    assert [name for name in names if not callable(getattr(ddp_workbook, name))] == []


# Links that lead out of the workbook


def links(path: Path) -> list[str]:
    """Every address that leads to another machine, as it is written."""
    found = re.findall(r"https?:[^\s)>\]\"'`|]*", text(path))
    return [link for link in found if urlsplit(link).hostname not in HERE]


def refusal(link: str) -> str:
    """Why a link leads nowhere: a status of 400 or more, or no answer; "" if all is well."""
    try:
        with urllib.request.urlopen(urllib.request.Request(link, headers=HEADERS), timeout=LIMIT):
            return ""  # it has followed redirections, and has not fetched the page itself
    except OSError as error:
        return f"{link}: {error}"


@each_page
def test_outward_links_are_well_formed(path):
    """https, a host with a domain, and no full stop that belongs to the sentence."""
    form = r"https://([\w-]+\.)+[a-z]{2,}(/[\w./~%+=&?#@:,-]*)?(?<![.,:])"
    assert [link for link in links(path) if not re.fullmatch(form, link)] == []


@pytest.mark.network
def test_every_outward_link_answers():
    """Each one once, however many pages name it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = {link for path in [*NOTEBOOKS, *MARKDOWN] for link in links(path)}
        assert [*filter(None, pool.map(refusal, sorted(found)))] == []


def test_a_link_that_leads_nowhere_is_named_with_the_reason(monkeypatch):
    """Here nobody listens."""
    monkeypatch.setenv("no_proxy", "*")
    assert "refused" in refusal("http://127.0.0.1:1/")
