"""How a check runs an attempt: on real ranks, until they return or are proven to hang."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from typing import TextIO

from ddp_workbook.exercises.judging import calls
from ddp_workbook.exercises.judging.attempts import YOUR_CELL, Attempt
from ddp_workbook.exercises.judging.in_rank import InRank
from ddp_workbook.launcher import fork_server
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.standstill import Limits

IDLE = 3.0  # seconds in which no rank does anything, while not all wait for one another
PROCESSOR = 2.0  # seconds of processor time of one rank; a right answer needs a few tenths
fork_server.preload(InRank.__module__, calls.__name__)
SLOW = "This machine is busy; the check goes on."
READY: set[int | None] = set()  # fork servers that have started a rank


def run_probe(attempt: Attempt, probe: Callable, ranks: int) -> list:
    """Call `probe(function)` with the attempt's function on the ranks; return its results by rank.

    0 ranks are one process without a group. Raises what `launch` raises: RanksHung only for a
    proven hang, however busy the machine is, and TooBusyToTell when a long patience ends.
    """
    attempt.ranks = ranks
    start_fork_server()
    limits = Limits(idle=IDLE, processor=PROCESSOR, on_slow=lambda: _say_once(attempt, SLOW))
    with _kept_output(attempt) as text:
        return run_ranks(
            Call(InRank(attempt.name, attempt.path, probe, group=ranks > 0)),
            max(1, ranks),
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
    """Keep what the ranks print for the verdict, instead of showing it above."""
    text = io.StringIO()
    try:
        yield text
    finally:
        attempt.printed = text.getvalue().replace(str(attempt.path), YOUR_CELL)
        if not attempt.ranks:  # its only process is not a rank
            attempt.printed = re.sub(r"^\[rank 0\] ", "", attempt.printed, flags=re.M)
