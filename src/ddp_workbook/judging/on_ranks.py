"""Runs cells on real ranks, until they return or are proven to hang: one launch makes all calls."""

import io
import os
import re
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TextIO

from ddp_workbook.judging.attempts import YOUR_CELL, Attempt
from ddp_workbook.judging.check import DistributedCheck
from ddp_workbook.judging.comparison import Observation
from ddp_workbook.judging.in_rank import InRank, OnlyCall, Records
from manyranks.errors import RankFailed, WorkbookError
from manyranks.launcher import fork_server
from manyranks.launcher.calls import Call
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.rank_environment import NO_GPU

IDLE_S = 3.0  # seconds in which no rank does anything, while not all wait for one another
CPU_S = 2.0  # seconds of processor time of one rank; a right answer needs a few tenths
MAX_VARIANTS = 1000  # edited solutions whose calls are cached
CPU_S_PER_VARIANT = 0.5  # more of them for each edited solution
fork_server.preload(InRank.__module__)
SLOW_MESSAGE = "This machine is busy; the check goes on."
WARM_SERVERS: set[int | None] = set()  # fork servers that have started a rank
Calls = list[list[Observation]]  # by call and rank
# What is known already: name, size and seeds of random calls are a series of calls
Series = tuple[str, int, tuple[int, ...]]
VARIANT_CALLS: dict[tuple[Series, int | None, str], Calls | None] = {}  # by call and text, too
SOLUTION_CALLS: dict[Series, Calls] = {}


def run_calls(
    check: DistributedCheck, attempt: Attempt, size: int, only: OnlyCall = None, progress: str = ""
) -> Calls:
    """The attempt's calls at this world size, or a single one: its number, perhaps its rank.

    Notes in the attempt what it prints, and in the file `progress` the number of each call after
    the first one. Raises what `launch` raises: RanksHung only for a proven hang, however busy the
    machine is, and HangUndecided when a long patience ends.
    """
    attempt.ranks = size if check.group else 0
    if fork_server.METHOD == "forkserver" and fork_server.server_pid() not in WARM_SERVERS - {None}:
        # Wait for a new one, which imports torch, before anything is measured.
        run_ranks(Call(os.getpid), 1, quiet=True)
        WARM_SERVERS.add(fork_server.server_pid())
    output = io.StringIO()  # for the verdict, instead of showing it above
    solution = solution_to_run(check, size)
    worker = InRank(check.name, size, solution, (), attempt.path, only, progress, check.seeds)
    try:
        calls = launch_cells(check, attempt, worker, output, lambda: _print_slow_once(attempt))[-1]
    finally:
        attempt.printed = output.getvalue().replace(str(attempt.path), YOUR_CELL)
        if not check.group:  # its only process is not a rank
            attempt.printed = re.sub(r"^\[rank 0\] ", "", attempt.printed, flags=re.M)
    assert calls is not None  # an attempt that raises has ended the launch
    return calls


def run_variants(
    check: DistributedCheck,
    attempt: Attempt,
    size: int,
    texts: Sequence[str],
    only: int | None = None,
    launches: int = 100,
) -> list[Calls | None]:
    """By text: what an edited solution gives in each call, or only in call number `only`.

    None stands for a text that raises or does not end. One that does not end ends the launch; then
    its halves are run, until there were so many launches. What is known from an earlier attempt is
    not run again.
    """
    if len(VARIANT_CALLS) > MAX_VARIANTS:
        VARIANT_CALLS.clear()
    one_call = None if only is None else (only, None)
    keys = {text: (series(check, size), only, text) for text in texts}
    batches = [[text for text in keys if keys[text] not in VARIANT_CALLS]]
    for _ in range(launches):
        if time.monotonic() > attempt.words_until:
            break
        if batch := batches.pop(0) if batches else []:
            solution = solution_to_run(check, size)
            worker = InRank(check.name, size, solution, batch, only=one_call, seeds=check.seeds)
            try:
                results = launch_cells(check, attempt, worker)
            except RankFailed:
                half = len(batch) // 2
                batches += [batch[:half], batch[half:]] if half else []
                results = [] if half else [None]
            except WorkbookError:  # too busy, or interrupted: nothing is known
                break
            VARIANT_CALLS.update(zip([keys[text] for text in batch], results, strict=False))
    return [VARIANT_CALLS.get(keys[text]) for text in texts]


def series(check: DistributedCheck, size: int) -> Series:
    """The calls of a check at this world size, as a key."""
    return check.name, size, check.seeds


def solution_to_run(check: DistributedCheck, size: int) -> str:
    """The solution's cell, if it must be run to compare with it; else ""."""
    known = not check.needs_solution or series(check, size) in SOLUTION_CALLS
    return "" if known else check.solution


def launch_cells(
    check: DistributedCheck,
    attempt: Attempt,
    worker: InRank,
    output: TextIO | None = None,
    on_slow: Callable[[], None] | None = None,
) -> list[Calls | None]:
    """What the worker's cells gave, and last the attempt; keeps what the solution gave."""
    size, more = worker.size, CPU_S_PER_VARIANT * len(worker.variants)
    answers = launch_worker(check, attempt, worker, max(1, size), output, on_slow, more)
    by_cell = list(zip(*answers, strict=True))
    if worker.solution:
        SOLUTION_CALLS[series(check, size)] = observations(check, size, by_cell.pop(0))
    return [
        None if None in answers_of_cell else observations(check, size, answers_of_cell, worker.only)
        for answers_of_cell in by_cell
    ]


def launch_worker(
    check: DistributedCheck,
    attempt: Attempt,
    worker: Callable,
    ranks: int,
    output: TextIO | None = None,
    on_slow: Callable[[], None] | None = None,
    more_cpu_s: float = 0.0,
) -> list:
    """What the worker returns on each rank, under the check's limits and on its network."""
    return run_ranks(
        Call(worker),
        ranks,
        quiet=True,
        hang_limits=HangLimits(idle=IDLE_S, processor=CPU_S + more_cpu_s, on_slow=on_slow),
        output=output or io.StringIO(),
        cancelled=attempt.interrupt,
        network=check.network,
        environment=NO_GPU,  # arguments are on the CPU; the verdict is the same on every machine
    )


def observations(
    check: DistributedCheck, size: int, answers: Sequence[Records], only: OnlyCall = None
) -> Calls:
    """What the ranks have returned, by call and rank, beside what the solution gave."""
    number, rank = only or (0, 0)
    cases, known = check.cases_of(size), SOLUTION_CALLS.get(series(check, size), [])
    calls = [
        [
            Observation(n, r, cases[n], **record)
            for r, record in enumerate(chain(*of_call), start=rank or 0)
        ]
        for n, of_call in enumerate(zip(*answers, strict=True), start=number)
    ]
    for call in calls:
        for obs in call:
            obs.all_ranks = call
            obs.solution = known[obs.call][obs.rank] if known else None
            obs.repeats = [c[obs.rank] for c in calls if c is not call and c[0].case is obs.case]
    return calls


def _print_slow_once(attempt: Attempt) -> None:
    if SLOW_MESSAGE not in attempt.messages:
        attempt.messages.add(SLOW_MESSAGE)
        print(SLOW_MESSAGE)
