"""How a check runs an attempt: on real ranks, with a time limit, recorded."""

import contextlib
import io
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd

from ddp_workbook.exercises.judging.attempts import YOUR_CELL, Attempt
from ddp_workbook.exercises.judging.in_rank import InRank
from ddp_workbook.launcher import fork_server
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.recording.collectives import recorded

LAUNCH_LIMIT = 5.0  # seconds for one launch
READY: set[int | None] = set()  # fork servers that have started a rank


def attempt_on_ranks(
    attempt: Attempt, probe: Callable | None = None, *, each: Sequence
) -> tuple[list, pd.DataFrame]:
    """Call the attempt on len(each) ranks, rank r with each[r]; what came back, and the wire.

    The group is there. `probe(function, each[r])`, at the top level of the exercise's file, calls
    the attempt in its own way instead; it may raise NotYet. The wire is the table of
    `record_collectives`; calls that the probe itself makes are in it, with an empty `line`.

    Raises what `launch` raises; a rank that hangs is stopped after LAUNCH_LIMIT seconds, or at the
    end of the check's own time.
    """
    attempt.ranks = len(each)
    return _run(attempt, probe, list(each), group=True)


def attempt_alone(attempt: Attempt, probe: Callable | None = None, *, case: Any = None) -> Any:
    """Call the attempt with `case` in one process of its own, without a group; what came back.

    `probe` as in `attempt_on_ranks`. Raises what `launch` raises.
    """
    attempt.ranks = 0
    answers, _ = _run(attempt, probe, [case], group=False)
    return answers[0]


def _run(attempt: Attempt, probe: Callable | None, each: list, *, group: bool) -> tuple:
    attempt.deadline += _seconds_until_ranks_can_start()
    attempt.seconds = min(LAUNCH_LIMIT, attempt.time_left)
    attempt.answers = None
    worker = InRank(attempt.name, attempt.path, probe, each, group)
    with _kept_output(attempt):
        answers, wire = recorded(worker, ranks=len(each), timeout=attempt.seconds)
    attempt.answers = None if probe else answers
    return answers, wire


def _seconds_until_ranks_can_start() -> float:
    """Wait for a new fork server, which imports torch; no attempt is to blame for that time."""
    start = time.monotonic()
    if fork_server.METHOD == "forkserver" and fork_server.server_pid() not in READY - {None}:
        run_ranks(Call(os.getpid), 1, quiet=True)
        READY.add(fork_server.server_pid())
    return time.monotonic() - start


@contextlib.contextmanager
def _kept_output(attempt: Attempt) -> Iterator[None]:
    """What the ranks print is a part of the verdict, not a page before it."""
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            yield
    finally:
        attempt.printed = text.getvalue().replace(str(attempt.path), YOUR_CELL)
        if not attempt.ranks:  # its only process is no rank
            attempt.printed = re.sub(r"^\[rank 0\] ", "", attempt.printed, flags=re.M)
