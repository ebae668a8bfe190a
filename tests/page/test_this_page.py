"""A page knows which it is, in JupyterLab and elsewhere."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ddp_workbook.page import pages, this_page

PAGES = pages.all_pages()


class Shell:
    """A kernel that has run these cells."""

    def __init__(self, *sources):
        self.history_manager = SimpleNamespace(input_hist_raw=["", *sources])


@pytest.fixture
def find(monkeypatch):
    """Ask in a kernel that has run some cells, under this name of Jupyter's for the notebook."""

    def find_page(sources=(), session=None):
        monkeypatch.delenv(this_page.SESSION, raising=False)
        if session is not None:
            monkeypatch.setenv(this_page.SESSION, session)
        monkeypatch.setattr(this_page, "get_ipython", lambda: Shell(*sources))
        return this_page.this_page()

    return find_page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_imports_of_a_page_tell_it_from_all_others(find, path):
    (imports,) = [cell for cell in pages.load(path)["cells"] if cell.get("id") == "imports"]
    assert find(sources=["1 + 1", pages.source(imports) + "\n"]) == path


def test_jupyter_says_which_page_it_is_whatever_has_run(find):
    one, other = PAGES[:2]
    (imports,) = [cell for cell in pages.load(one)["cells"] if cell.get("id") == "imports"]
    assert find(sources=[pages.source(imports)], session=f"notebooks/{other.name}") == other


@pytest.mark.parametrize("session", [None, "notebooks/Untitled.ipynb", ""])
def test_a_notebook_of_ones_own_is_no_page(find, session):
    assert find(sources=["x = 1"], session=session) is None


def test_outside_a_notebook_there_is_no_page(monkeypatch):
    monkeypatch.delenv(this_page.SESSION, raising=False)
    assert this_page.this_page() is None


def test_without_the_checkout_there_is_no_page(find, monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    assert find(session="00_start_here.ipynb") is None


def test_a_link_leads_from_a_page_to_another_one():
    for one in PAGES:
        for other in PAGES:
            address = pages.link_to(other.stem, one.stem)
            assert (one.parent / address).resolve() == other.resolve()


def test_a_further_page_works_where_all_pages_do(monkeypatch, tmp_path):
    """Attempts, guesses and files that cells write are in one folder."""
    further = tmp_path / "notebooks" / "further"
    further.mkdir(parents=True)
    monkeypatch.chdir(further)
    pages.work_in_the_folder_of_all_pages()
    assert Path.cwd() == further  # somebody else's folder of that name
    (further.parent / "00_start_here.ipynb").touch()
    pages.work_in_the_folder_of_all_pages()
    pages.work_in_the_folder_of_all_pages()
    assert Path.cwd() == further.parent
