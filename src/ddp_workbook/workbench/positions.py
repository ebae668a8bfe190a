"""Where a rank stands: its Python stack, read down to one line of the reader's code and the call it waits in."""

import linecache
import os
import re
from dataclasses import dataclass

import psutil

from ddp_workbook.workbench import rank_process
from ddp_workbook.workbench.sources import is_own, short

FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
WRAPPERS = ("c10d_logger.py", "_contextlib.py", "typing_extensions.py", "_decorators.py")


@dataclass
class Position:
    """One rank's place: `doing` in words, and the reader's line (empty `file` where none is on the stack)."""

    rank: int
    doing: str
    file: str = ""
    line: int = 0
    call: str = ""  # the library function that the reader's line called, "" while Python code runs

    @property
    def place(self) -> str:
        """ "train.py:12  dist.all_reduce(x)", or "" """
        if not self.file:
            return ""
        linecache.checkcache(self.file)
        return f"{short(self.file)}:{self.line}  {linecache.getline(self.file, self.line).strip()}"


def position(handle) -> Position:
    """The Position of one RankHandle, from its outcome or its stack."""
    outcome = handle.outcome
    if outcome is not None:
        words = {"returned": "has returned", "raised": "has failed", "died": "has died"}
        return Position(handle.rank, words[outcome.kind])
    frames = handle.stack or crash_stack(handle)
    if frames:
        return standing(handle.rank, frames)
    if is_stopped(handle.pid):
        return Position(handle.rank, "is stopped (SIGSTOP)")
    return Position(handle.rank, "does not answer" if handle.started else "has not started yet")


def crash_stack(handle) -> list[tuple[str, int, str]]:
    """What `faulthandler` wrote in the rank, at a fatal signal or because it was asked to."""
    return main_stack(handle.distress.decode("utf-8", "replace"))


def is_stopped(pid: int | None) -> bool:
    """True for a process that a signal has halted."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def standing(rank: int, frames: list[tuple[str, int, str]]) -> Position:
    """Read `frames` (innermost first) as: what the reader's innermost line is doing."""
    index = next((i for i, (file, _, _) in enumerate(frames) if is_own(file)), None)
    if index is None:
        return Position(rank, _before_the_worker(frames))
    file, line, _ = frames[index]
    called = next((name for f, _, name in reversed(frames[:index]) if not f.endswith(WRAPPERS)), "")
    if called == "__init__":
        called = os.path.splitext(os.path.basename(frames[index - 1][0]))[0]
    inside = any("torch" in f for f, _, _ in frames[:index])
    verb = "waits in" if inside else "is in"
    return Position(rank, f"{verb} {called}" if called else "runs Python code", file, line, called)


def _before_the_worker(frames: list[tuple[str, int, str]]) -> str:
    names = {name for _, _, name in frames}
    if names & {"pack", "reducer_override"}:
        return "is packing its result"
    if names & {"unpack", "settle_in"}:
        return "is importing the worker's file"
    return "is starting or ending"


def main_stack(dump: str) -> list[tuple[str, int, str]]:
    """Frames (file, line, function), innermost first, of the thread that runs the worker; of the last dump in `dump`."""
    threads = re.split(r"^(?=(?:Current thread|Thread|Stack) )", dump, flags=re.M)
    stacks = [
        [(m["file"], int(m["line"]), m["name"]) for m in map(FRAME.match, part.splitlines()) if m]
        for part in threads
    ]
    ours = [
        s
        for s in stacks
        if any(file == rank_process.__file__ and name == "main" for file, _, name in s)
    ]
    if ours:
        return ours[-1]
    current = [
        s
        for part, s in zip(threads, stacks, strict=True)
        if part.startswith(("Current thread", "Stack")) and s
    ]
    return current[-1] if current else []
