"""`ddp-workbook update`, in real repositories: one to clone from, and an attendee's."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ddp_workbook.page import pages
from ddp_workbook.workshop import updating
from tests.commands import run

PAGE, OTHER_PAGE = "notebooks/00_a.ipynb", "notebooks/01_b.ipynb"
NEWEST = "This is the newest edition already. Nothing was changed."
ME = ("-c", "user.name=a", "-c", "user.email=a@b.c")


def git(folder: Path, *words: str) -> str:
    """Run git there."""
    line = ["git", "-C", str(folder), *ME, *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def cell(key: str, text: str, **more) -> dict:
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    return {"id": key, "metadata": {}, "source": text.splitlines(keepends=True)} | code | more


def page(*cells: dict) -> dict:
    kernel = {"kernelspec": {"name": "python3"}}
    return {"cells": list(cells), "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


SHIPPED_PAGES = [cell("one", "1"), cell("two", "2"), cell("three", "3")]


def commit(folder: Path, files: dict[str, str | dict | None]) -> None:
    """Write these files (None: delete), and commit them."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            file.unlink()
        elif isinstance(content, dict):
            pages.save(file, content)
        else:
            file.write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "edition")


@pytest.fixture
def upstream(tmp_path) -> Path:
    """The repository of the workbook."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    git(folder, "init", "-qb", "main")
    ours = {".gitignore": "work/\n.venv\n", "src/ddp_workbook/a.py": "a = 1\n", "tools/b.sh": "b\n"}
    commit(
        folder,
        {
            PAGE: page(*SHIPPED_PAGES),
            OTHER_PAGE: page(*SHIPPED_PAGES),
            "pyproject.toml": "",
            **ours,
        },
    )
    return folder


@pytest.fixture
def mine(upstream, tmp_path, monkeypatch) -> Path:
    """An attendee's clone, with an attempt and its note, in which the command works."""
    git(tmp_path, "clone", "-q", str(upstream), "mine")
    folder = tmp_path / "mine"
    work = folder / "notebooks" / "work" / "exercises"
    work.mkdir(parents=True)
    (work / "ring.1.py").write_text("my attempt")
    (work / "ring.solved").write_text("ring.1.py\n")
    monkeypatch.setattr(pages, "CHECKOUT", folder)
    return folder


def update(*words) -> tuple[int, str]:
    """The exit code, and what was said."""
    return run("update", *words)


def everything(folder: Path) -> dict[str, bytes]:
    """All files but git's own."""
    files = (path for path in folder.rglob("*") if path.is_file())
    own = folder / ".git"
    return {str(p.relative_to(folder)): p.read_bytes() for p in files if own not in p.parents}


def texts(folder: Path, name: str = PAGE) -> list[str]:
    return ["".join(cell["source"]) for cell in pages.load(folder / name)["cells"]]


def answer_page(folder: Path, **by_id: str) -> None:
    """Save the page as an attendee does: these texts, outputs, and a cell of their own."""
    notebook = pages.load(folder / PAGE)
    for old_cell in notebook["cells"]:
        old_cell |= {"execution_count": 3, "outputs": [{"output_type": "stream", "text": ["x"]}]}
        old_cell["source"] = by_id.get(old_cell["id"], "".join(old_cell["source"]))
    notebook["cells"].insert(2, cell("own", "my own"))
    pages.save(folder / PAGE, notebook)


@pytest.fixture(params=["upstream", "--from a clone"])
def where(request, upstream) -> list:
    """The words of `update` for each way to the new edition, which is committed by then."""
    return [] if request.param == "upstream" else ["--from", upstream]


def test_own_cells_stay_where_only_the_attendee_changed_them(upstream, mine, where):
    """The fix arrives; answers, outputs, own cells, attempts and notes stay; twice is once."""
    answer_page(mine, three="my answer")
    work = everything(mine / "notebooks" / "work")
    new = [cell("zero", "0"), cell("one", "1, mended"), *SHIPPED_PAGES[1:]]
    new_files = {"src/ddp_workbook/new.py": "n\n", "tools/b.sh": None, "pyproject.toml": "x"}
    commit(upstream, {PAGE: page(*new), "src/ddp_workbook/a.py": "a = 2\n", **new_files})
    code, output = update(*where)
    assert code == 0 and "5 files are new, with 00_a.ipynb." in output and "make lab" in output
    assert texts(mine) == ["0", "1, mended", "2", "my own", "my answer"]
    assert [bool(one["outputs"]) for one in pages.load(mine / PAGE)["cells"]][2:] == [1, 0, 1]
    assert (mine / "src/ddp_workbook/a.py").read_text() == "a = 2\n"
    assert (mine / "src/ddp_workbook/new.py").exists() and not (mine / "tools/b.sh").exists()
    assert everything(mine / "notebooks" / "work") == work
    before = everything(mine)
    assert update(*where) == (0, NEWEST) and everything(mine) == before


def test_a_later_edition_after_one_from_a_folder(upstream, mine, tmp_path):
    """The stick in the morning, the network at noon. What is not committed there stays there."""
    answer_page(mine, three="my answer")
    commit(upstream, {PAGE: page(cell("one", "1, mended"), *SHIPPED_PAGES[1:])})
    git(tmp_path, "clone", "-q", str(upstream), "stick")
    (tmp_path / "stick" / "Ann Lee.tar.gz").write_text("attempts")
    assert update("--from", tmp_path / "stick")[0] == 0
    assert texts(mine)[0] == "1, mended" and not (mine / "Ann Lee.tar.gz").exists()
    commit(upstream, {PAGE: page(cell("one", "1, better"), *SHIPPED_PAGES[1:])})
    code, output = update()
    assert code == 0 and "kept in" not in output
    assert texts(mine) == ["1, better", "2", "my own", "my answer"]
    assert git(mine, "rev-parse", "HEAD") == git(upstream, "rev-parse", "HEAD")
    assert update()[1] == NEWEST
    assert update("--from", tmp_path / "stick")[1] == NEWEST  # older


def test_a_cell_that_both_changed_is_laid_beside(upstream, mine, where):
    """Also one that is shipped no more; the file beside opens as a notebook."""
    answer_page(mine, one="mine", two="2, my way")
    commit(upstream, {PAGE: page(cell("one", "1, mended"), SHIPPED_PAGES[2])})
    code, output = update(*where)
    copy = mine / "notebooks" / "work" / "pages" / "00_a.1.ipynb"
    assert code == 0 and "2 of your cells" in output and str(copy) in output
    assert texts(mine) == ["1, mended", "my own", "3"]
    assert texts(copy.parent, copy.name) == ["mine", "2, my way"]
    assert update(*where)[1] == NEWEST
    assert len(list(copy.parent.iterdir())) == 1


def test_a_file_that_both_changed_is_laid_beside(upstream, mine, where):
    """A worker that the attendee has edited; the pages need the new one."""
    (mine / "src/ddp_workbook/a.py").write_text("a = 'mine'\n")
    (mine / "tools/b.sh").write_text("mine\n")
    (mine / "src/ddp_workbook/new.py").write_text("not from git\n")
    ours = {"src/ddp_workbook/a.py": "a = 2\n", "src/ddp_workbook/new.py": "n\n"}
    commit(upstream, {"tools/b.sh": None, **ours})
    code, output = update(*where)
    beside = mine / "notebooks" / "work" / "pages"
    assert code == 0 and str(beside / "a.1.py") in output
    assert (beside / "a.1.py").read_text() == "a = 'mine'\n"
    assert (beside / "new.1.py").read_text() == "not from git\n"
    assert {name: (mine / name).read_text() for name in ours} == ours
    assert (mine / "tools/b.sh").read_text() == "mine\n"
    assert update(*where)[1] == NEWEST


def test_a_changed_page_that_has_moved_stays_and_is_named(upstream, mine, where):
    """The reader's page where it was, the new one in its folder, and a sentence that says so."""
    answer_page(mine, three="my answer")
    name = Path(PAGE).name
    commit(upstream, {PAGE: None, f"notebooks/further/{name}": page(*SHIPPED_PAGES)})
    code, output = update(*where)
    assert code == 0 and texts(mine)[2] == "my own"
    assert texts(mine, f"notebooks/further/{name}") == ["1", "2", "3"]
    said = f"{PAGE} is yours now: you had changed it, and the new edition has it as"
    assert said in output and f"notebooks/further/{name}, without" in output
    assert update(*where)[1] == NEWEST


def test_a_deleted_cell_comes_back_only_if_it_is_new(upstream, mine):
    held = page(SHIPPED_PAGES[2])
    pages.save(mine / PAGE, held)
    commit(upstream, {PAGE: page(SHIPPED_PAGES[0], cell("two", "2, mended"), SHIPPED_PAGES[2])})
    assert update()[0] == 0 and texts(mine) == ["2, mended", "3"]


def test_a_page_without_the_shipped_ids_is_laid_beside_whole(upstream, mine):
    """An old front end gives none, and another one its own."""
    held = page(*({**one, "id": f"x{number}"} for number, one in enumerate(SHIPPED_PAGES)))
    pages.save(mine / PAGE, held)
    commit(upstream, {PAGE: page(cell("one", "1, mended"))})
    assert update()[0] == 0 and texts(mine) == ["1, mended"]
    assert texts(mine / "notebooks" / "work" / "pages", "00_a.1.ipynb") == ["1", "2", "3"]


@pytest.mark.parametrize("half", ['{"cells": [', '{"nbformat": 4, "cells": [3]}', ""])
def test_a_page_in_the_middle_of_saving_is_left_alone(upstream, mine, where, half):
    """All else is new, and the next update renews the page, with what the attendee has in it."""
    (mine / PAGE).write_text(half)
    mended = page(cell("one", "1, mended"), *SHIPPED_PAGES[1:])
    commit(upstream, {PAGE: mended, OTHER_PAGE: mended})
    code, output = update(*where)
    assert code == 1 and f"{PAGE} was left as it is." in output and "not a notebook" in output
    assert (mine / PAGE).read_text() == half and texts(mine, OTHER_PAGE)[0] == "1, mended"
    pages.save(mine / PAGE, page(*SHIPPED_PAGES[:2], cell("three", "my answer")))
    assert update(*where)[0] == 0
    assert texts(mine) == ["1, mended", "2", "my answer"]
    assert update(*where)[1] == NEWEST


def test_a_whole_page_comes_back_as_the_clone_had_it(upstream, mine, monkeypatch):
    """`reset --page` after `update --from`."""
    commit(upstream, {PAGE: page(cell("one", "1, mended"))})
    assert update("--from", upstream)[0] == 0
    answer_page(mine)
    monkeypatch.setattr(pages, "FOLDER", mine / "notebooks")
    assert run("reset", "--page", "00")[0] == 0
    assert texts(mine) == ["1, mended"]


def test_a_page_that_is_saved_while_it_is_renewed_is_left_alone(upstream, mine, monkeypatch):
    """What was saved since it was looked at is kept, and the next update takes it along."""
    commit(upstream, {PAGE: page(cell("one", "1, mended"), *SHIPPED_PAGES[1:])})
    look = updating.changes

    def saved_meanwhile(*words):
        result = look(*words)
        answer_page(mine, three="my answer")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(updating, "changes", saved_meanwhile)
        code, output = update()
    assert code == 1 and "It was saved in this moment. Save it, and run `update` again." in output
    assert update()[0] == 0 and texts(mine) == ["1, mended", "2", "my own", "my answer"]


def test_a_script_that_has_become_a_program(upstream, mine):
    (upstream / "tools/b.sh").chmod(0o755)
    commit(upstream, {})
    assert update()[0] == 0 and os.access(mine / "tools/b.sh", os.X_OK)
    assert update()[1] == NEWEST


def test_a_shallow_clone(upstream, tmp_path, monkeypatch):
    git(tmp_path, "clone", "-q", "--depth", "1", upstream.as_uri(), "mine")
    monkeypatch.setattr(pages, "CHECKOUT", tmp_path / "mine")
    answer_page(tmp_path / "mine", three="my answer")
    for text in ("1, mended", "1, better"):
        commit(upstream, {PAGE: page(cell("one", text), *SHIPPED_PAGES[1:])})
    assert update()[0] == 0
    assert texts(tmp_path / "mine") == ["1, better", "2", "my own", "my answer"]


# What is refused


def assert_refused(folder: Path, *parts: str, words: tuple = ()) -> None:
    """The update says these, and changes nothing."""
    before = everything(folder)
    code, output = update(*words)
    assert code == 2 and everything(folder) == before
    assert all(part in output for part in (*parts, "Nothing was changed.")), output


def test_no_git(mine, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_refused(mine, "git is not installed")


def test_a_copy_without_git(mine):
    """Unpacked from an archive, also inside another repository."""
    shutil.rmtree(mine / ".git")
    assert_refused(mine, "was not made by `git clone`", "notebooks/work")
    git(mine.parent, "init", "-q")
    assert_refused(mine, "was not made by `git clone`")


def test_no_upstream(mine):
    git(mine, "checkout", "-qb", "experiments")
    assert_refused(mine, "follows no other one", "`git checkout main`", "--from DIR")


def test_no_network(mine, upstream):
    upstream.rename(upstream.with_name("gone"))
    assert_refused(mine, "origin/main cannot be fetched", "does not appear to be a git repository")


def test_local_commits(mine, upstream):
    """The mend that the sentence names changes no file, and the update then goes well."""
    answer_page(mine, three="my answer")
    git(mine, "commit", "-qam", "my answers")
    assert update()[1] == NEWEST
    commit(upstream, {PAGE: page(cell("one", "1, mended"), *SHIPPED_PAGES[1:])})
    assert_refused(mine, "You have commits that origin/main has not", "git reset --soft")
    base = git(mine, "merge-base", "HEAD", "@{upstream}").strip()
    git(mine, "reset", "--soft", base)
    assert update()[0] == 0
    assert texts(mine) == ["1, mended", "2", "my own", "my answer"]


def test_a_merge_that_was_begun(mine, upstream):
    """What an attendee has who tried `git pull` first, with and without a stash."""
    answer_page(mine, one="mine")
    commit(upstream, {PAGE: page(cell("one", "1, mended"), *SHIPPED_PAGES[1:])})
    git(mine, "stash")
    git(mine, "pull", "-q")
    with pytest.raises(subprocess.CalledProcessError):
        git(mine, "stash", "pop")
    assert_refused(mine, f"git has conflicts in {PAGE}", "git checkout HEAD -- FILE")
    git(mine, "checkout", "HEAD", "--", PAGE)
    assert update()[1] == NEWEST
    commit(upstream, {PAGE: page(cell("one", "1, better"))})
    answer_page(mine, one="mine again")
    git(mine, "commit", "-qam", "mine")
    with pytest.raises(subprocess.CalledProcessError):
        git(mine, "pull", "-q", "--no-rebase")
    assert_refused(mine, "`git merge --abort`")


def test_a_folder_that_is_no_clone(mine, tmp_path):
    assert_refused(mine, "is no clone of the workbook", words=("--from", tmp_path / "nowhere"))
    assert_refused(mine, "is no clone of the workbook", words=("--from", tmp_path))


def test_a_disk_that_is_full_or_read_only(mine, upstream, monkeypatch):
    """What would be lost is kept first; the next update completes the one that was stopped."""
    answer_page(mine, one="mine")
    (mine / "notebooks" / "work" / "pages").write_text("a file in the way")
    commit(
        upstream, {PAGE: page(cell("one", "1, mended"), *SHIPPED_PAGES[1:]), "tools/b.sh": "c\n"}
    )
    assert_refused(mine, "could not be kept")
    (mine / "notebooks" / "work" / "pages").unlink()
    with monkeypatch.context() as full:
        full.setattr(
            pages, "write_atomically", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
        )
        code, output = update()
        assert code == 2 and "cannot be written: full" in output
    assert update()[0] == 0 and texts(mine) == ["1, mended", "2", "my own", "3"]
    copies = [json.loads(path.read_text()) for path in (mine / "notebooks/work/pages").iterdir()]
    assert ["mine"] in [["".join(one["source"]) for one in held["cells"]] for held in copies]


def test_nothing_of_the_surroundings_leads_git_astray(mine, upstream, monkeypatch):
    """As in a hook of another repository."""
    monkeypatch.setenv("GIT_DIR", os.fspath(upstream / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", os.fspath(upstream))
    answer_page(mine)
    assert update()[1] == NEWEST
