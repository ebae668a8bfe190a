"""`ddp-workbook reset`: an exercise's stub back on its page, or a whole page as it was shipped."""

from pathlib import Path

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import find
from ddp_workbook.judging.source import same_code
from ddp_workbook.page import pages
from ddp_workbook.workshop.updating import CannotUpdate, git
from manyranks.errors import WorkbookError
from manyranks.files import write_atomically, write_numbered


def reset(name: str, path: Path | None = None) -> Path | None:
    """Put the stub of the exercise back into its cell; return the file that keeps the attempt.

    `path` is the notebook, by default the exercise's own page. None: there was nothing to keep. The
    attempt is saved beside the notebook, in work/exercises, before the page is written. A cell that
    has lost its first line, its kind or itself is found by the ids that pages are shipped with.

    Raises:
        UnknownExercise: there is no such exercise.
        BadPage: the notebook has no place for it, or cannot be read or written.
        WorkbookError: the attempt cannot be saved; then the page has not changed.
    """
    exercise = find(name)
    path = path or pages.page_of(name)
    page = pages.load(path)
    cell = pages.cell_of(page, name)
    if cell is None:
        raise pages.BadPage(
            f"{path} has no cell that begins with %%exercise {name}, nor its task or its hint. If "
            "this is its page, `reset --page` brings back the whole page."
        )
    source = pages.source(cell)
    code = source.partition("\n")[2] if pages.EXERCISE.match(source) else source
    copy = None
    if code.strip() and not same_code(code, exercise.stub):
        copy = attempts.save_numbered(path.parent / attempts.FOLDER, name, code)
    elif pages.EXERCISE.match(source) and cell["cell_type"] == "code":
        return None
    cell["cell_type"] = "code"
    pages.fill(cell, name, exercise.stub)
    pages.save(path, page)
    return copy


def reset_page(name: str) -> tuple[Path, Path | None]:
    """Put a whole page back as it was shipped; return it, and the file that keeps what it was.

    Saved attempts are files of their own, and stay. The copy is beside them, in work/pages; None if
    the page was gone.

    Raises:
        BadPage: there is no such page, git does not have it, or it cannot be written.
        WorkbookError: the page cannot be kept; then it has not changed.
    """
    try:
        names = git(pages.FOLDER, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
        shipped_pages = [pages.FOLDER / file for file in names if file.endswith(".ipynb")]
        (path,) = pages.find_pages([name], shipped_pages)
        original = git(pages.FOLDER, "show", f"HEAD:./{path.relative_to(pages.FOLDER).as_posix()}")
    except CannotUpdate as error:
        raise pages.BadPage(
            f"git cannot show the page as it was shipped: {error} Take it from "
            "the repository by hand. Nothing was changed."
        ) from None
    copy = _copy_page(path) if path.exists() else None
    try:
        write_atomically(path, original)
    except OSError as error:
        raise pages.BadPage(f"{path} cannot be written: {error.strerror}.") from None
    return path, copy


def _copy_page(path: Path) -> Path:
    """A copy of the page under a new number. Raises WorkbookError if it cannot be made."""
    try:
        return write_numbered(
            pages.FOLDER / "work" / "pages", path.stem, ".ipynb", path.read_bytes()
        )
    except OSError as error:
        raise WorkbookError(f"The page could not be kept: {error}. Nothing changed.") from None
