"""`ddp-workbook grade`: the saved attempts, judged as on the page."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddp_workbook.diagnostics import user_code
from ddp_workbook.errors import WorkbookError
from ddp_workbook.exercises.judging import attempts
from ddp_workbook.exercises.judging.catalogue import Exercise, find, names
from ddp_workbook.exercises.judging.judge import judge_saved
from ddp_workbook.exercises.judging.source import same_code
from ddp_workbook.exercises.judging.verdict import NOT_ATTEMPTED, SOLVED, UNDECIDED, Verdict
from ddp_workbook.notebook.pages import CHECKOUT


@dataclass(frozen=True)
class Grade:
    """An exercise, how many different attempts are saved, and the verdict on the best of them.

    An attempt that has passed counts, whatever came after it; `latest` is how the last one is.
    """

    name: str
    attempts: int
    verdict: Verdict
    latest: str


def attempts_folder(work: Path | None = None) -> Path:
    """The folder with attempts: in `work`, or by default where the notebooks save them.

    Raises WorkbookError if there is none.
    """
    here, of_notebooks = Path("work"), CHECKOUT / "notebooks" / "work"
    work = work or (here if (here / "exercises").is_dir() else of_notebooks)
    for folder in (work / "exercises", work):
        if folder.is_dir() and (folder.name == "exercises" or any(folder.glob("*.py"))):
            return folder.absolute()
    raise WorkbookError(
        f"There are no attempts in {work}: they are saved in work/exercises, beside the notebook, "
        "when an exercise's cell runs. --work names another folder."
    )


def whose(folders: Sequence[Path]) -> dict[Path, str]:
    """A short name for each folder of attempts: the part of its path that the others do not have.

    "ann" for home/ann/work/exercises beside home/bob/work/exercises.
    """
    parts = {folder: folder.parts for folder in folders}
    first, *others = parts.values()
    same = [all(part in other for other in others) for part in first]
    common = {part for part, shared in zip(first, same, strict=True) if shared and others}
    return {
        folder: "/".join(part for part in own if part not in common) or str(folder)
        for folder, own in parts.items()
    }


def grade(wanted: Sequence[str], folder: Path) -> Iterator[Grade]:
    """The exercises with these names, or all that have attempts in the folder, in their order.

    Judging runs the attempts' code, and changes none of their files. Raises UnknownExercise at
    once for an unknown name.
    """
    exercises = [find(name) for name in wanted or names()]
    return (
        one
        for one in (_grade(exercise, folder) for exercise in exercises)
        if wanted or one.verdict.kind != NOT_ATTEMPTED
    )


def unknown_files(folder: Path) -> list[str]:
    """Names of the folder's Python files that belong to no exercise, so that nobody judges them."""
    known = set(names())  # "where_is", of where_is.py and where_is.2.py, an earlier attempt
    found = {path.name for path in folder.glob("*.py")}
    return sorted(name for name in found if name.partition(".")[0] not in known)


def _grade(exercise: Exercise, folder: Path) -> Grade:
    name = exercise.name
    count = len(attempts.earlier(folder, name))
    latest = _judged(exercise, folder / f"{name}.py")
    best = latest
    if latest.kind != SOLVED and (passed := attempts.passed_in(folder, name)):
        best = _judged(exercise, passed[max(passed)])  # the note could be anybody's: judged again
        best = best if best.kind == SOLVED else latest
    count = max(count, int(latest.kind != NOT_ATTEMPTED))
    return Grade(name, count, best, latest.kind)


def _judged(exercise: Exercise, file: Path) -> Verdict:
    """The verdict on a saved attempt."""
    name = exercise.name
    try:
        saved = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Verdict(NOT_ATTEMPTED, f"{name}: not attempted yet")
    except (OSError, UnicodeDecodeError) as error:
        return Verdict(UNDECIDED, f"{name}: the attempt cannot be read: {error}")
    code = saved.partition("\n")[2] if saved.startswith("# %%exercise") else saved
    if same_code(code, exercise.stub):
        return Verdict(NOT_ATTEMPTED, f"{name}: not attempted yet")
    with tempfile.TemporaryDirectory(prefix="ddp-workbook-grade-") as own:
        # A copy: its author may save the next attempt while this one is judged.
        path = Path(own, f"{name}.py")
        path.write_text(attempts.saved_text(name, code), encoding="utf-8")
        user_code.call_it(str(path), attempts.YOUR_CELL)
        return judge_saved(exercise, attempts.Attempt(name, path), code)
