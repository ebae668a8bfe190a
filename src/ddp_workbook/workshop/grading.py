"""`ddp-workbook grade`: the saved attempts, judged as on the page."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ddp_workbook.judging import attempts
from ddp_workbook.judging.catalogue import Exercise, find, names
from ddp_workbook.judging.source import same_code
from ddp_workbook.judging.verdict import (
    NOT_ATTEMPTED,
    NOT_YET,
    SOLVED,
    UNDECIDED,
    Verdict,
)
from ddp_workbook.page.pages import CHECKOUT
from ddp_workbook.workshop import sandboxed_judge
from ddp_workbook.workshop.sandbox import SandboxedProcess, SandboxLimitExceeded
from manyranks.errors import WorkbookError

OF_EVERYBODY = ("exercises", "work", "notebooks")  # folders in which attempts are saved


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


def attendee_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Whose attempts each folder has: the name of the folder in which their work/ is.

    "Ann Lee" for collected/Ann Lee/work/exercises. Where several have the same name, the folders
    above are part of it: "group 1/ann" beside "group 2/ann".
    """
    parts = {
        folder: [part for part in folder.absolute().parts[1:] if part not in OF_EVERYBODY]
        for folder in folders
    }
    names = {}
    for folder, own in parts.items():
        others = [other for path, other in parts.items() if path != folder]
        lengths = (n for n in range(1, len(own) + 1) if own[-n:] not in (o[-n:] for o in others))
        length = next(lengths, 0)
        names[folder] = "/".join(own[-length:]) if length else str(folder)
    return names


def grade(exercise_names: Sequence[str], folder: Path) -> Iterator[Grade]:
    """The exercises with these names, or all that have attempts in the folder, in their order.

    Judging runs the attempts' code, apart from this process (see `sandbox`), and changes none of
    their files. Raises UnknownExercise at once for an unknown name.
    """
    exercises = [find(name) for name in exercise_names or names()]
    return _grades(exercises, folder, bool(exercise_names))


def _grades(exercises: Sequence[Exercise], folder: Path, all_of_them: bool) -> Iterator[Grade]:
    with closing(Judge()) as judge:
        for exercise in exercises:
            result = _grade(exercise, folder, judge)
            if all_of_them or result.verdict.kind != NOT_ATTEMPTED:
                yield result


class Judge:
    """Judges attempts in a process apart, which is started when needed, and again if it ended."""

    def __init__(self) -> None:
        self.process: SandboxedProcess | None = None

    def __call__(self, exercise: Exercise, code: str) -> Verdict:
        """The verdict on an attempt."""
        self.process = self.process or SandboxedProcess(sandboxed_judge.__name__)
        request = json.dumps({"name": exercise.name, "code": code})
        try:
            reply = json.loads(self.process.answer(request))
            return Verdict(reply["kind"], reply["title"], reply["rows"], reply["printed"])
        except SandboxLimitExceeded as problem:
            words = str(problem)
        except (ValueError, TypeError, KeyError):
            words = "wrote into the pipe of the process that judges it"
        self.close()
        rows = [("came back", f"it {words}")]
        return Verdict(NOT_YET, f"Not yet: {exercise.name} was stopped", rows)

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.close()
        self.process = None


def unknown_files(folder: Path) -> list[str]:
    """Names of the folder's Python files that belong to no exercise, so that nobody judges them."""
    known = {
        *names(),
        *attempts.FORMER_NAMES.values(),
    }  # "where_is", of where_is.py and where_is.2.py, an earlier attempt
    file_names = {path.name for path in folder.glob("*.py")}
    return sorted(name for name in file_names if name.partition(".")[0] not in known)


def _grade(exercise: Exercise, folder: Path, judge: Judge) -> Grade:
    name = exercise.name
    count = len(attempts.earlier(folder, name))
    latest = _judge_file(exercise, folder / f"{name}.py", judge)
    best = latest
    if latest.kind != SOLVED and (passes := attempts.passed_attempts(folder, name)):
        best = _judge_file(exercise, passes[max(passes)], judge)  # the note could be anybody's
        best = best if best.kind == SOLVED else latest
    count = max(count, int(latest.kind != NOT_ATTEMPTED))
    return Grade(name, count, best, latest.kind)


def _judge_file(exercise: Exercise, file: Path, judge: Judge) -> Verdict:
    """The verdict on a saved attempt."""
    name = exercise.name
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Verdict(NOT_ATTEMPTED, f"{name}: not attempted yet")
    except (OSError, UnicodeDecodeError) as error:
        return Verdict(UNDECIDED, f"{name}: the attempt cannot be read: {error}")
    code = text.partition("\n")[2] if text.startswith("# %%exercise") else text
    if same_code(code, exercise.stub):
        return Verdict(NOT_ATTEMPTED, f"{name}: not attempted yet")
    return judge(exercise, code)
