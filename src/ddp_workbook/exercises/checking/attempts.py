"""The reader's attempts: each is a file before anything of it runs, and none is overwritten."""

import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from ddp_workbook.workbench import sources
from ddp_workbook.workbench.errors import WorkbookError
from ddp_workbook.workbench.files import temporary_folder, write_whole

FOLDER = Path("work") / "exercises"
YOUR_CELL = "your cell"  # what pages call the file of an attempt
TIME_LIMIT = 10.0  # seconds for a whole check; DESIGN's target for one is 1.5


@dataclass
class Attempt:
    """A saved attempt at the exercise `name`, on its way through a check."""

    name: str
    path: Path
    deadline: float = field(default_factory=lambda: time.monotonic() + TIME_LIMIT)
    ranks: int = 0  # of the launch that ran last; 0 before, and where no group was made
    seconds: float = 0.0  # that the launch was given
    printed: str = ""  # what it printed

    @property
    def time_left(self) -> float:
        """Seconds left for this check, never less than a launch needs to say something."""
        return max(0.5, self.deadline - time.monotonic())


def save(name: str, code: str) -> Attempt:
    """Write the cell to `work/exercises/<name>.py`; what was there before is kept beside it.

    Line 1 is the magic's own, so that line numbers are those of the page. Where the folder is
    read-only, a temporary one is used. Raises WorkbookError if nothing can be written.
    """
    text = f"# %%exercise {name}\n{code}"
    problem = None
    for folder in (FOLDER.absolute(), temporary_folder() / "exercises"):
        path = folder / f"{name}.py"
        try:
            keep(path, text)
            sources.call_it(str(path), YOUR_CELL)
            return Attempt(name, write_whole(path, text))
        except OSError as error:
            problem = error
    raise WorkbookError(f"Your attempt could not be saved, so it was not run: {problem}.")


def keep(path: Path, text: str) -> None:
    """Copy the file at `path`, if it holds something else than `text`, to the next free number."""
    if not path.exists() or (old := path.read_text(encoding="utf-8")) == text:
        return
    if any(older.read_text(encoding="utf-8") == old for older in older_than(path)):
        return
    for number in count(1):
        try:
            with open(path.with_name(f"{path.stem}.{number}.py"), "x", encoding="utf-8") as copy:
                copy.write(old)
            return
        except FileExistsError:
            continue


def older_than(path: Path) -> list[Path]:
    """The earlier attempts beside `path`."""
    return [one for one in path.parent.glob(f"{path.stem}.*.py") if one.suffixes[0][1:].isdigit()]


def saved(name: str) -> Path | None:
    """The latest attempt on disk, if there is one."""
    path = FOLDER.absolute() / f"{name}.py"
    return path if path.exists() else None


def note_solved(attempt: Attempt, sentence: str) -> None:
    """Remember, beside the attempt, that it passed."""
    write_whole(attempt.path.with_suffix(".solved"), f"{sentence}\n")


def is_solved(name: str) -> bool:
    """True once an attempt at `name` has passed."""
    return any(
        (folder / f"{name}.solved").exists()
        for folder in (FOLDER.absolute(), temporary_folder() / "exercises")
    )
