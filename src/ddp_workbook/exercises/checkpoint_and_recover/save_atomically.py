"""Save a training run's state so that a kill at any moment leaves the old file or the new one.

`path` is a `Path`; a file of an earlier save may stand there. The check runs your function, and
looks at what the folder holds after each step that it makes: a kill there would leave just that.

- At every moment `path` holds its old content or the new one, whole. Without an older file, there
  is none until the new one is whole.
- Afterwards `torch.load(path, weights_only=True)` returns the state, and nothing else is left in
  the folder. What an earlier save left there when it was killed does not stop the next one.
- If the save fails, your function raises an error. The file is the old one, and nothing of the
  attempt is left. The disk may be full or report an error, the folder may be read-only, `path`
  may be the name of a folder, the state may hold an object that cannot be pickled.
- It survives a power cut as well. The system writes data and names to the disk later, in any
  order, so a new name could stand on an empty file: the data must be on the disk before the name.
"""

import io
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ddp_workbook.judging import (
    CheckFailed,
    Comparison,
    Observation,
    Pattern,
    SingleProcessCheck,
    body,
    edit,
    in_words,
)
from ddp_workbook.judging.crash_points import (
    CrashPoints,
    full_disk,
    read_if_present,
    read_only,
    temporary_target,
)
from ddp_workbook.judging.equality import values_equal

MINUTES = 15
HINTS = [
    "Which operation of a file system is atomic, and never shows a half? Writing is not.",
    "Write to another name in the same folder, then rename: `Path.replace` takes the place of an "
    "older file. What must happen between the two, and what if one of them fails?",
    "Python has a buffer for each open file, and the system another one. torch.save empties the "
    "first; after a `write` of your own, `flush` does. `os.fsync` waits until the disk has all "
    "that the system has of a file.",
]


def save_atomically(state: dict, path: Path) -> None:
    """Write the state to `path`: all of it, or the older file stays and an error is raised."""
    ### BEGIN SOLUTION
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())  # else a power cut may leave the new name on an empty file
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    ### END SOLUTION


class Save(NamedTuple):
    """One call: what is in its way."""

    what: str
    fails: bool = True
    kilobytes: float | None = None  # room on the disk


CASES = [
    Save("an older save stands at path", fails=False),
    Save("no older save", fails=False),
    Save("an earlier call was killed in the middle", fails=False),
    Save("the disk is full after 0 kB", kilobytes=0),
    Save("the disk is full after 20 kB", kilobytes=20),
    Save("the disk is full when the last byte is written", kilobytes=-0.001),
    Save("the state holds a generator, which cannot be saved"),
    Save("path is a folder"),
    Save("the disk reports an error in fsync"),
    Save("the folder is read-only"),
]
FIRST, KILLED, UNSAVABLE, A_FOLDER, SYNC, READ_ONLY = (CASES[n] for n in (1, 2, 6, 7, 8, 9))
OLD = {"step": 10, "weights": torch.zeros(8)}
SMALL = {"step": 20, "weights": torch.ones(8), "losses": [0.5]}  # fits into Python's buffer
NEW = {"step": 20, "weights": torch.arange(10_000).float(), "losses": [0.5, 0.25]}
FILE = "last.pt"


def state_of(case: Save) -> dict:
    """What can be saved of the state in a call."""
    return dict(SMALL if case is FIRST else NEW)


def as_bytes(state: dict) -> bytes:
    """What torch.save writes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def call_in_folder(save_atomically: Callable, case: Save) -> dict[str, Any]:
    """Call the function in a folder of its own, and say what it has left there."""
    with temporary_target() as folder:
        folder.mkdir()
        path = folder / FILE
        if case is A_FOLDER:
            path.mkdir()
        elif case is not FIRST:
            path.write_bytes(as_bytes(OLD))
        if case is KILLED:
            crash_points = call_once(save_atomically, path, case)[0]
            path.unlink(missing_ok=True)
            path.write_bytes(as_bytes(OLD))
            moments = crash_points.other_files
            contents = moments[len(moments) // 2] if moments else {}
            for file, content in contents.items():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        return observe_call(save_atomically, path, case)


def call_once(function: Callable, path: Path, case: Save) -> tuple[CrashPoints, str]:
    """Call the function; what was seen, and the error that it raised, or ""."""
    inner = getattr(function, "function", function)
    crash_points = CrashPoints(path, getattr(inner, "__code__", None))
    state = state_of(case) | ({"more": (n for n in ())} if case is UNSAVABLE else {})
    with ExitStack() as stack:
        names = getattr(inner, "__globals__", {})
        stack.enter_context(crash_points.recording_fsync(names, fails=case is SYNC))
        if case.kilobytes is not None:
            free_bytes = int(case.kilobytes * 1000)
            stack.enter_context(
                full_disk(free_bytes if free_bytes >= 0 else len(as_bytes(NEW)) + free_bytes)
            )
        stack.enter_context(
            read_only(path.parent) if case is READ_ONLY else crash_points.recording()
        )
        try:
            function(state, path)
        except CheckFailed:
            raise
        except Exception as error:
            if not case.fails:
                raise
            return crash_points, f"{type(error).__name__}: {error}"
    return crash_points, ""


def observe_call(save_atomically: Callable, path: Path, case: Save) -> dict[str, Any]:
    """What a call has done to the folder, at each moment and in the end."""
    before, names = read_if_present(path), list_names(path.parent)
    crash_points, error = call_once(save_atomically, path, case)
    after = read_if_present(path)
    whole = describe_path(path, before, after, state_of(case))
    saved = whole == "the new state"
    torn = [moment for moment in crash_points.contents if moment[0] not in (before, after)]
    return {
        "whole": whole,
        "message": error,
        "new state": saved or case.fails,
        "error": not case.fails
        or bool(error)
        or (saved and not (case is SYNC and crash_points.fsync_called)),
        "intact": not case.fails or saved or whole in ("the old state", "the folder"),
        "torn": torn if saved and not case.fails else [],
        "old": before,
        "leftovers": [name for name in list_names(path.parent) if name not in [*names, FILE]],
        "own folder": crash_points.is_inside,
        "order": crash_points.not_synced,
    }


def list_names(folder: Path) -> list[str]:
    """The names of all files and folders below this one."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def describe_path(path: Path, before: bytes | None, after: bytes | None, new: dict) -> str:
    """What stands at `path` after a call, in words."""
    if path.is_dir():
        return "the folder"
    if after is None:
        return "no file"
    if after == before:
        return "the old state"
    try:
        state = torch.load(io.BytesIO(after), weights_only=True)
    except Exception as error:  # whatever a file that torch.save has not written makes it raise
        return f"a file of {size(after)} that cannot be loaded ({type(error).__name__})"
    return "the new state" if values_equal(state, new) else f"another state: {in_words(state)}"


def size(content: bytes | None) -> str:
    """Of a file, in words."""
    return "no file" if content is None else f"{len(content):,} bytes"


def describe_torn(obs: Observation) -> str:
    """The first moment at which a kill would have left neither file."""
    content, line = obs.actual["torn"][0]
    place = f"killed in your line {line}" if line else "killed in the middle"
    old = obs.actual["old"]
    state = "there is no file at path" if content is None else f"path has {size(content)}"
    before = f"; before the call it had {size(old)}" if old else ""
    return f"{place}: {state}{before}"


WRITE = """with new.open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())  # else a power cut may leave the new name on an empty file
"""
CLEAN = """except BaseException:
        new.unlink(missing_ok=True)
        raise"""
CHECK = SingleProcessCheck(
    cases=CASES,
    make_args=lambda case: (case,),
    caller=call_in_folder,
    observe=lambda actual, case: actual,
    call_text="save_atomically(state, path); {case.what}",
    compare={
        "new state": Comparison(
            "What does torch.load find at path? Does torch.save write this file, and all of the "
            "state?",
            True,
            actual=lambda obs: f"path holds {obs.actual['whole']}",
            required="path holds the new state, and torch.load(path, weights_only=True) returns it",
        ),
        "torn": Comparison(
            "A write takes many steps, a copy as well. Under which name could the file grow, "
            "until it is whole?",
            [],
            select=lambda obs: [content is None for content, _ in obs.actual["torn"][:1]],
            actual=describe_torn,
            required="path has the old content, or all of the new one",
        ),
        "error": Comparison(
            "Who learns that nothing was saved? Which line catches the error, and what does it "
            "do with it?",
            True,
            actual=lambda obs: f"it returned; path holds {obs.actual['whole']}",
            required="an error is raised",
        ),
        "intact": Comparison(
            "The save has failed, and path is not as it was. Which line touches it before the "
            "new file is whole?",
            True,
            actual=lambda obs: f"path holds {obs.actual['whole']}, after {obs.actual['message']}",
            required="path holds what it held before the call",
        ),
        "leftovers": Comparison(
            "Which line removes the unfinished file, and is it reached after this error?",
            [],
            actual=lambda obs: (
                f"left in the folder: {', '.join(obs.value)}"
                + (f", after {obs.actual['message']}" if obs.actual["message"] else "")
            ),
            required="no other file than before, and path",
        ),
        "own folder": Comparison(
            "A rename is atomic within one file system: from /tmp it may be a copy, or an error. "
            "In which folder should the unfinished file grow?",
            True,
            actual="the file came to path from another folder",
            required="the unfinished file is in path's own folder, or below it",
        ),
        "order": Comparison(
            "What is fsync asked to put on the disk here? A folder's fsync is for its names, and "
            "they may come later than the data, never before.",
            "",
            actual="the file got its new name, {value}",
            required="the data is on the disk before the file has its new name: a power cut may "
            "come",
        ),
    },
    mistakes={
        "A write takes many steps, and the old file is lost at the first of them. Where could the "
        "new one grow until it is whole?": [
            edit('path.with_name(f"{path.name}.new")', "path"),
            body("torch.save(state, path)"),
            body("""
            with path.open("wb") as file:
                torch.save(state, file)
                os.fsync(file.fileno())
            """),
        ],
        "Copying is writing. Which call moves a whole file to another name, in one step?": edit(
            "new.replace(path)", "path.write_bytes(new.read_bytes())\n        new.unlink()"
        ),
        "The error of a failed save is lost. Who would know that there is no new file?": edit(
            "unlink(missing_ok=True)\n        raise", "unlink(missing_ok=True)"
        ),
        "What becomes of the unfinished file if a line before the rename raises?": edit(
            CLEAN, "finally:\n        pass"
        ),
        "Which types of errors come through here? torch.save raises others than OSError.": edit(
            "except BaseException", "except OSError"
        ),
        "And if the rename itself fails? What is left then?": edit(
            "        new.replace(path)\n",
            "",
            "        raise",
            "        raise\n    new.replace(path)",
        ),
        "The name comes first here, and the data later. In which order must the two come?": (
            edit(
                WRITE,
                """torch.save(state, new)
""",
                "new.replace(path)",
                """new.replace(path)
        with path.open("rb") as file:
            os.fsync(file.fileno())""",
            )
        ),
        "For a moment there is no file at path. Which call gives a new file an old one's name, in "
        "one step?": Pattern(lambda obs: obs.value == [True], "torn"),
        "The old file is gone, and no new one came. Which line removes it?": Pattern(
            lambda obs: obs.actual["whole"] == "no file", "intact"
        ),
        "The save is done, and more than one file is there. What is the other one for?": Pattern(
            lambda obs: not obs.actual["message"], "leftovers"
        ),
        "The system keeps new data in memory for a while, and may put the name on the "
        "disk first. Which call waits until a file's data is there?": Pattern(
            lambda obs: "no fsync" in obs.value, "order"
        ),
        "This fsync came while some of the data was not yet written to the file: perhaps in "
        "Python's own buffer. What empties that?": Pattern(
            lambda obs: "before all" in obs.value, "order"
        ),
    },
    errors={
        "FileExistsError": "A call that was killed could not remove its file. What should the next "
        "one do with it, and does rename take the place of a folder?",
        "Invalid cross-device link": "In which folder should the unfinished file grow?",
    },
    on_pass="in 10 calls: killed after any step, path holds the old state or the new one; after a "
    "full disk or another error it holds the old one, and nothing else is left",
)
