"""The reader's attempts: each is a file before anything of it runs, and none is overwritten."""

import contextlib
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ddp_workbook.diagnostics import user_code
from ddp_workbook.errors import WorkbookError
from ddp_workbook.files import temporary_folder, write_whole

FOLDER = Path("work") / "exercises"
YOUR_CELL = "your cell"  # what pages call the file of an attempt
TIME_LIMIT = 10.0  # seconds for a whole check; DESIGN's target for one is 1.5


@dataclass
class Attempt:
    """A saved attempt at the exercise `name`, on its way through a check.

    `path` is a file of this attempt alone: what another kernel saves meanwhile does not change it.
    """

    name: str
    path: Path
    deadline: float = field(default_factory=lambda: time.monotonic() + TIME_LIMIT)
    ranks: int = 0  # of the launch that ran last; 0 before, and where no group was made
    seconds: float = 0.0  # that the launch was given
    printed: str = ""  # what it printed
    answers: list[Any] | None = None  # what the function returned in it, where no probe was sent

    @property
    def time_left(self) -> float:
        """Seconds left for this check, never less than a launch needs to say something."""
        return max(0.5, self.deadline - time.monotonic())


def save(name: str, code: str) -> Attempt:
    """Write the cell to `work/exercises/<name>.py`, and to a numbered file beside it.

    Equal attempts share a number. Line 1 is the magic's own, so that line numbers are those of the
    page. Where the folder is read-only, a temporary one is used. Raises WorkbookError if nothing
    can be written.
    """
    text = f"# %%exercise {name}\n{_writable(code)}"
    problem = None
    for folder in _folders():
        latest = folder / f"{name}.py"
        try:
            if latest.exists():  # perhaps changed in an editor
                _numbered(folder, name, latest.read_bytes())
            path = _numbered(folder, name, text.encode())
            write_whole(latest, text)
        except OSError as error:
            problem = error
            continue
        user_code.call_it(str(path), YOUR_CELL)
        return Attempt(name, path)
    raise WorkbookError(f"Your attempt could not be saved, so it was not run: {problem}.")


def _folders() -> list[Path]:
    """Where attempts are kept, and where instead if that cannot be written."""
    return [FOLDER.absolute(), temporary_folder() / "exercises"]


def _writable(code: str) -> str:
    """The cell with one kind of line end, and with half characters written out."""
    plain = code.replace("\r\n", "\n").replace("\r", "\n")
    return plain.encode("utf-8", "backslashreplace").decode("utf-8")


def _numbered(folder: Path, name: str, data: bytes) -> Path:
    """The file of the attempt with this content: an earlier one, or one with the next number.

    A number is taken by making the file, which only one of two kernels can do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    older = earlier(folder, name)
    for path in older.values():
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return path
    for number in count(max(older, default=0) + 1):
        path = folder / f"{name}.{number}.py"
        try:
            with open(path, "xb") as file:
                file.write(data)
            return path
        except FileExistsError:
            continue
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)  # half of an attempt is none
            raise


def earlier(folder: Path, name: str) -> dict[int, Path]:
    """The numbered attempts at `name` in this folder."""
    found = [(path.name.split(".")[1], path) for path in folder.glob(f"{name}.*.py")]
    return {int(number): path for number, path in sorted(found) if number.isdecimal()}


def saved(name: str) -> Path | None:
    """The latest attempt on disk, if there is one."""
    path = FOLDER.absolute() / f"{name}.py"
    return path if path.exists() else None


def note_solved(attempt: Attempt, sentence: str) -> None:
    """Remember, beside the attempts, which one has passed, and with which words."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            write_whole(folder / f"{attempt.name}.solved", f"{attempt.path.name}\n{sentence}\n")
            return


def solved(name: str) -> Path | None:
    """The attempt at `name` that has passed, the latest of them; None if there is none."""
    for folder in _folders():
        note = folder / f"{name}.solved"
        if note.exists():
            first = note.read_text(encoding="utf-8").partition("\n")[0]
            return next((f / first for f in _folders() if (f / first).exists()), note)
    return None
