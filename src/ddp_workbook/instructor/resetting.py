"""`ddp-workbook reset`: an exercise's stub back on its page, the attempt kept as a file."""

from pathlib import Path

from ddp_workbook.exercises.judging import attempts
from ddp_workbook.exercises.judging.catalogue import find
from ddp_workbook.exercises.judging.source import same_code
from ddp_workbook.notebook import pages


def reset(name: str, path: Path | None = None) -> Path | None:
    """Put the stub of the exercise back into its cell; return the file that keeps the attempt.

    `path` is the notebook, by default the exercise's own page. None: the cell held the stub. The
    attempt is saved beside the notebook, in work/exercises, before the page is written.

    Raises:
        UnknownExercise: there is no such exercise.
        BadPage: the notebook has no cell for it, or cannot be read or written.
        WorkbookError: the attempt cannot be saved; then the page has not changed.
    """
    exercise = find(name)
    path = path or pages.page_of(name)
    page = pages.load(path)
    cell = next((cell for one, cell in pages.exercises(page) if one == name), None)
    if cell is None:
        raise pages.BadPage(f"{path} has no cell that begins with %%exercise {name}.")
    code = pages.source(cell).partition("\n")[2]
    if same_code(code, exercise.stub):
        return None
    kept = attempts.keep(path.parent / attempts.FOLDER, name, code)
    pages.fill(cell, name, exercise.stub)
    pages.save(path, page)
    return kept
