"""Where a rank stands: its stack, read down to one line of the reader's code and the call there."""

import linecache
import os
import re
from dataclasses import dataclass

import psutil

from ddp_workbook.diagnostics.user_code import is_own, short
from ddp_workbook.launcher import rank_process

Frame = tuple[str, int, str]  # file, line, function
FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$')
THREAD = re.compile(r"^(?=(?:Current thread|Thread|Stack) )", flags=re.M)
WRAPPERS = (
    "c10d_logger.py",
    "_contextlib.py",
    "typing_extensions.py",
    "_decorators.py",
    "nn/modules/module.py",  # model(x) is called forward
)
TWO_SIDED = ("send", "recv", "isend", "irecv", "batch_isend_irecv")  # calls that are no collective
AT_ITS_LINE = "is at"
LONGEST_LINE = 80  # characters of the reader's line on the page


@dataclass
class Position:
    """One rank's place: `doing` in words, and the reader's line, if there is one on the stack."""

    rank: int
    doing: str
    file: str = ""
    line: int = 0
    call: str = ""  # the library's function that the reader's line called, if any

    @property
    def place(self) -> str:
        """ "train.py:12  dist.all_reduce(x)", or "" """
        if not self.file:
            return ""
        linecache.checkcache(self.file)
        text = linecache.getline(self.file, self.line).strip()
        text = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"
        return f"{short(self.file)}:{self.line}  {text}".rstrip()


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


def crash_stack(handle) -> list[Frame]:
    """What `faulthandler` wrote in the rank, at a fatal signal or because it was asked to."""
    return main_stack(handle.distress.decode("utf-8", "replace"))


def is_stopped(pid: int | None) -> bool:
    """True for a process that a signal has halted."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def standing(rank: int, frames: list[Frame]) -> Position:
    """Read `frames` (innermost first) as: what the reader's innermost line is doing."""
    index = next((i for i, (file, _, _) in enumerate(frames) if is_own(file)), None)
    if index is None:
        return Position(rank, _outside_the_worker(frames))
    file, line, _ = frames[index]
    called = next((name for f, _, name in reversed(frames[:index]) if not f.endswith(WRAPPERS)), "")
    if called == "__init__":
        called = os.path.splitext(os.path.basename(frames[index - 1][0]))[0]
    inside = any("torch" in f for f, _, _ in frames[:index])
    verb = "waits in" if inside else "is in"
    return Position(rank, f"{verb} {called}" if called else AT_ITS_LINE, file, line, called)


def _outside_the_worker(frames: list[Frame]) -> str:
    names = {name for _, _, name in frames}
    if names & {"pack", "reducer_override"}:
        return "is packing its result"
    if names & {"unpack", "settle_in"}:
        return "is importing the worker's file"
    if "_run_exitfuncs" in names or "leave" in names:
        return "is ending"
    if "work" in names:
        return "is leaving the worker"
    return "is sending its result" if "send" in names else "is starting"


def main_stack(dump: str) -> list[Frame]:
    """Innermost first, of the thread that runs the worker; of the last dump in `dump`."""
    threads = THREAD.split(dump)
    stacks = [
        [(m["file"], int(m["line"]), m["name"]) for m in map(FRAME.match, part.splitlines()) if m]
        for part in threads
    ]
    home = (rank_process.__file__, "main")
    ours = [s for s in stacks if any((file, name) == home for file, _, name in s)]
    if ours:
        return ours[-1]
    current = [
        stack
        for part, stack in zip(threads, stacks, strict=True)
        if stack and part.startswith(("Current thread", "Stack"))
    ]
    return current[-1] if current else []
