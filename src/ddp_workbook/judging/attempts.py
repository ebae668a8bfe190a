"""The reader's attempts: each is saved to a file before it runs, and none is overwritten."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from manyranks.diagnostics import user_code
from manyranks.errors import WorkbookError
from manyranks.files import temporary_folder, temporary_folders, write_atomically

if TYPE_CHECKING:
    from ddp_workbook.judging.check import CheckFailed

FOLDER = Path("work") / "exercises"
YOUR_CELL = "your cell"  # the name of an attempt's file in reports
FORMER_NAMES = {  # exercise -> what the edition before called it, and its saved attempts
    "fix_job_script": "mend_the_job_script",
    "fix_sharded_training": "heal_does_not_learn",
    "fix_uneven_batches": "heal_three_ranks",
}
OWN_ATTEMPTS: dict[str, Path] = {}  # by exercise: the latest attempt of this kernel
SAVE_PROBLEMS: dict[str, str] = {}  # by exercise: why its latest attempt is in a temporary folder
OWN_NOTES: dict[str, Path] = {}  # by exercise: the note of this kernel's latest attempt that passed


@dataclass
class Attempt:
    """A saved attempt at the exercise `name` while it is checked.

    `path` is a file of this attempt only, so that no other kernel changes it meanwhile.
    """

    name: str
    path: Path
    ranks: int = 0  # of the last launch; 0 before it, and if no group was made
    printed: str = ""  # what it printed
    interrupt: threading.Event | None = None  # set by an interrupt if launches run in threads
    first_call_right: bool = False  # if a later call failed
    later_call: str = ""  # that call, in words
    messages: set[str] = field(default_factory=set)  # messages to the reader during the check
    # Called with what is wrong, as soon as that is known and before there are words for it
    on_problem: Callable[[CheckFailed], None] | None = None
    words_until: float = math.inf  # time.monotonic() at which the search for words ends


def save(name: str, code: str) -> Attempt:
    """Write the cell to `work/exercises/<name>.py`, and to a numbered file beside it.

    Equal attempts share a number. Line 1 is the magic's line, so that line numbers are those of the
    page. If the folder is read-only, a temporary one is used. Raises WorkbookError if nothing
    can be written.
    """
    text = saved_text(name, code)
    problem = None
    for folder in _folders_to_write():
        latest = folder / f"{name}.py"
        try:
            if latest.exists():  # perhaps changed in an editor
                _write_numbered(folder, name, latest.read_bytes())
            path = _write_numbered(folder, name, text.encode())
            write_atomically(latest, text)
        except OSError as error:
            problem = error
            continue
        user_code.set_display_name(str(path), YOUR_CELL)
        OWN_ATTEMPTS[name], SAVE_PROBLEMS[name] = path, str(problem or "")
        return Attempt(name, path)
    raise WorkbookError(f"Your attempt could not be saved, so it was not run: {problem}.")


def warning(name: str) -> str:
    """What a reader must know if this kernel's latest attempt goes with the kernel; else ""."""
    if not (problem := SAVE_PROBLEMS.get(name)):
        return ""
    return (
        f"Your attempt could not be saved beside the page: {problem}. It is in "
        f"{OWN_ATTEMPTS[name]}, and is deleted when this kernel ends. Copy your cell to another "
        "place, then make room, or make the folder writable."
    )


def saved_text(name: str, code: str) -> str:
    """What an attempt's file holds: the magic's line as a comment, then the cell."""
    return f"# %%exercise {name}\n{_writable(code)}"


def save_numbered(folder: Path, name: str, code: str) -> Path:
    """Write the cell to a numbered file in `folder` and run nothing; return that file.

    Raises WorkbookError if it cannot be written.
    """
    try:
        return _write_numbered(folder, name, saved_text(name, code).encode())
    except OSError as error:
        raise WorkbookError(f"The attempt could not be saved: {error}. Nothing changed.") from None


def _folders_to_write() -> Iterator[Path]:
    """The folder for attempts, then the one to use if that cannot be written."""
    yield FOLDER.absolute()
    yield temporary_folder() / "exercises"


def _writable(code: str) -> str:
    """The cell with Unix line ends, and with surrogate characters escaped."""
    plain = code.replace("\r\n", "\n").replace("\r", "\n")
    return plain.encode("utf-8", "backslashreplace").decode("utf-8")


def _write_numbered(folder: Path, name: str, data: bytes) -> Path:
    """The file of the attempt with this content: an earlier one, or one with the next number.

    A kernel claims a number by creating its file, which only one of two kernels can do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    older = earlier(folder, name)
    for path in older.values():
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return path
    number = max(older, default=0) + 1
    while True:
        path = folder / f"{name}.{number}.py"
        try:
            with open(path, "xb") as file:
                file.write(data)
            return path
        except FileExistsError:
            number += 1
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)  # do not leave half an attempt
            raise


def earlier(folder: Path, name: str) -> dict[int, Path]:
    """The numbered attempts at `name` in this folder."""
    _copy_former_attempts(folder, name)
    numbered = [(path.name.split(".")[1], path) for path in folder.glob(f"{name}.*.py")]
    return {int(number): path for number, path in sorted(numbered) if number.isdecimal()}


def _copy_former_attempts(folder: Path, name: str) -> None:
    """Copy what the edition before saved here of the exercise under its former name, once."""
    former = FORMER_NAMES.get(name)
    if former is None or next(folder.glob(f"{name}.*"), None):
        return
    for path in folder.glob(f"{former}.*"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = re.sub(rf"\b{former}\b", name, path.read_text(encoding="utf-8"))
            copy = write_atomically(folder / path.name.replace(former, name), text)
            shutil.copystat(path, copy)


def all_attempts(name: str) -> list[Path]:
    """All different attempts at `name` that are saved, the oldest first."""
    return [path for folder in _folders() for path in earlier(folder, name).values()]


def _folders() -> list[Path]:
    """The folder for attempts, then the temporary ones of all kernels."""
    return [FOLDER.absolute(), *(path / "exercises" for path in temporary_folders())]


def latest_attempt(name: str) -> Path | None:
    """The latest attempt on disk, if there is one.

    If the latest comes from another kernel, this kernel's own; not if it was changed in an editor.
    """
    folder = FOLDER.absolute()
    _copy_former_attempts(folder, name)
    path, own = folder / f"{name}.py", OWN_ATTEMPTS.get(name)
    with contextlib.suppress(OSError):
        if own and own.parent == folder and own.read_bytes() != (latest := path.read_bytes()):
            saved = earlier(folder, name).values()
            return own if any(attempt.read_bytes() == latest for attempt in saved) else path
    return path if path.exists() else None


def note_solved(attempt: Attempt, sentence: str) -> None:
    """Save a note beside the attempt that it has passed, with the words of its verdict.

    Each attempt has its own note, so two kernels that solve an exercise keep both.
    """
    note = attempt.path.with_suffix(".solved")
    with contextlib.suppress(OSError):
        write_atomically(note, f"{attempt.path.name}\n{sentence}\n")
        OWN_NOTES[attempt.name] = note


def latest_passed(name: str) -> Path | None:
    """The latest attempt at `name` that has passed; None if there is none.

    This kernel's own comes before another's.
    """
    passed: dict[tuple[int, Path], Path] = {}
    for folder in _folders():
        passed |= passed_attempts(folder, name)
    own = OWN_NOTES.get(name)
    return next(
        (attempt for (_, note), attempt in passed.items() if note == own),
        passed[max(passed)] if passed else None,
    )


def passed_attempts(folder: Path, name: str) -> dict[tuple[int, Path], Path]:
    """The attempts in this folder that have passed, each by the time of its note and the note."""
    _copy_former_attempts(folder, name)
    passed = {}
    for note in (*folder.glob(f"{name}.solved"), *folder.glob(f"{name}.*.solved")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            attempt = folder / Path(note.read_text(encoding="utf-8").partition("\n")[0]).name
            if attempt.is_file():
                passed[note.stat().st_mtime_ns, note] = attempt
    return passed
