"""How a check runs an attempt: on real ranks, until they return or are proven to hang."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import pandas as pd

from ddp_workbook.exercises.judging import calls
from ddp_workbook.exercises.judging.attempts import YOUR_CELL, Attempt
from ddp_workbook.exercises.judging.in_rank import InRank
from ddp_workbook.launcher import fork_server
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.standstill import Limits
from ddp_workbook.recording.collectives import as_table
from ddp_workbook.recording.dispatch_mode import Recorded

IDLE = 3.0  # seconds in which no rank does anything, and not all of them wait for each other
PROCESSOR = 2.0  # seconds of processor time for one rank; a right answer needs a few tenths
fork_server.preload(InRank.__module__, calls.__name__)
SLOW = "This machine is busy; the check goes on."
READY: set[int | None] = set()  # fork servers that have started a rank


def attempt_on_ranks(
    attempt: Attempt, probe: Callable | None = None, *, each: Sequence
) -> tuple[list, pd.DataFrame]:
    """Call the attempt on len(each) ranks, rank r with each[r]; what came back, and the wire.

    The group is there. `probe(function, each[r])`, at the top level of the exercise's file, calls
    the attempt in its own way instead; it may raise NotYet. The wire is the table of
    `record_collectives`; calls that the probe itself makes are in it, with an empty `line`.

    Raises what `launch` raises; RanksHung only for a hang that is proven, on however busy a
    machine, and TooBusyToTell at the end of a long patience.
    """
    attempt.ranks = len(each)
    worker = InRank(attempt.name, attempt.path, probe, list(each), group=True)
    outcomes = _run(attempt, Recorded(worker), len(each))
    answers = [answer for answer, _ in outcomes]
    attempt.answers = None if probe else answers
    return answers, as_table([rows for _, rows in outcomes])


def attempt_alone(attempt: Attempt, probe: Callable | None = None, *, case: Any = None) -> Any:
    """Call the attempt with `case` in one process of its own, without a group; what came back.

    `probe` as in `attempt_on_ranks`. Raises what `launch` raises.
    """
    attempt.ranks = 0
    answers = _run(attempt, InRank(attempt.name, attempt.path, probe, [case], group=False), 1)
    attempt.answers = None if probe else answers
    return answers[0]


def run_probe(attempt: Attempt, probe: Callable, ranks: int) -> list:
    """`probe(function, None)` on so many ranks, 0 for a process without a group; unrecorded."""
    attempt.ranks, group = ranks, ranks > 0
    each = [None] * max(1, ranks)
    return _run(attempt, InRank(attempt.name, attempt.path, probe, each, group), len(each))


def _run(attempt: Attempt, worker: Callable, ranks: int) -> list:
    start_fork_server()
    attempt.answers = None
    limits = Limits(idle=IDLE, processor=PROCESSOR, on_slow=lambda: _say_once(attempt, SLOW))
    with _kept_output(attempt) as text:
        return run_ranks(
            Call(worker),
            ranks,
            quiet=True,
            by_evidence=limits,
            output=text,
            cancelled=attempt.cancelled,
        )


def _say_once(attempt: Attempt, words: str) -> None:
    if words not in attempt.said:
        attempt.said.add(words)
        print(words)


def start_fork_server() -> None:
    """Wait for a new fork server, which imports torch, before anything is measured."""
    if fork_server.METHOD == "forkserver" and fork_server.server_pid() not in READY - {None}:
        run_ranks(Call(os.getpid), 1, quiet=True)
        READY.add(fork_server.server_pid())


@contextlib.contextmanager
def _kept_output(attempt: Attempt) -> Iterator[TextIO]:
    """What the ranks print is a part of the verdict, not a page before it."""
    text = io.StringIO()
    try:
        yield text
    finally:
        attempt.printed = text.getvalue().replace(str(attempt.path), YOUR_CELL)
        if not attempt.ranks:  # its only process is no rank
            attempt.printed = re.sub(r"^\[rank 0\] ", "", attempt.printed, flags=re.M)
