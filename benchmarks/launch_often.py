"""Many launches in a row, every tenth failing on purpose; prints the counts as JSON.

TMPDIR=... DDP_WORKBOOK_BENCHMARK=... python -m benchmarks.launch_often 1000
"""

import contextlib
import io
import itertools
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.traces import leaks, traces
from benchmarks.workers.all_reduce import all_reduce
from benchmarks.workers.failing import fail
from ddp_workbook import RankFailed, RanksHung, launch

RANKS = (2, 3, 4)
FAIL_EVERY = 10
HANG_TIMEOUT_S = 1.0  # seconds
LATE_S = 20.0  # seconds past its time limit after which a launch counts as hung
EXAMPLES = 3  # wrong verdicts that are shown

Verdict = Callable[[RankFailed, int], bool]


def ended_with(code: int) -> Verdict:
    """The bad rank is named with this exit status."""
    return lambda error, bad: error.rank == bad and error.returncode == code


def says(words: str) -> Verdict:
    """The bad rank is named, and the page says so in these words."""
    return lambda error, bad: error.rank == bad and words in str(error)


def returned_early(error: RankFailed, bad: int) -> bool:
    """The report says that the bad rank had returned, whichever rank waited for it."""
    return f"rank {bad} had already returned" in str(error)


def hung(error: RankFailed, bad: int) -> bool:
    """All ranks have a position, and the bad one is in its own line of the worker's file."""
    own = [place for place in getattr(error, "positions", []) if place.rank == bad]
    return isinstance(error, RanksHung) and bool(own) and "failing.py" in own[0].place


KINDS: dict[str, Verdict] = {
    "raise": says("ValueError: failing on purpose"),
    "os._exit(3)": ended_with(3),
    "SIGKILL": ended_with(-signal.SIGKILL),
    "early return": returned_early,
    "endless loop": hung,
    "segmentation fault": ended_with(-signal.SIGSEGV),
    "abort": ended_with(-signal.SIGABRT),
    "result that cannot be pickled": says("cannot be sent back"),
    "stuck in gloo": hung,
    "sys.exit(4)": says("4"),
}


def launch_well(ranks: int) -> str:
    """Launch a worker that works; return what was wrong, or ""."""
    results = launch(all_reduce, ranks=ranks)
    right = [ranks * (ranks + 1) / 2] * ranks
    return "" if results == right else f"{ranks} ranks returned {results}."


def launch_badly(kind: str, ranks: int, bad: int) -> str:
    """Launch a worker that fails on rank `bad`; return what was wrong with the verdict, or ""."""
    hangs = KINDS[kind] is hung
    try:
        results = launch(fail, kind, bad, ranks=ranks, timeout=HANG_TIMEOUT_S if hangs else 60)
    except RankFailed as error:
        right = isinstance(error, RanksHung) == hangs and KINDS[kind](error, bad)
        return "" if right else f"{kind} on rank {bad} of {ranks}: {error}"
    return f"{kind} on rank {bad} of {ranks} returned {results}."


def launch_many(count: int) -> dict:
    """All launches, timed: kinds of failure, hangs, wrong verdicts with examples, seconds."""
    kinds, wrong, slow = Counter(), [], 0
    next_kind = itertools.cycle(KINDS)
    start = time.monotonic()
    for number in range(count):
        ranks = RANKS[number % len(RANKS)]
        began = time.monotonic()
        if number % FAIL_EVERY == FAIL_EVERY - 1:
            kind = next(next_kind)
            kinds[kind] += 1
            complaint = launch_badly(kind, ranks, bad=number // FAIL_EVERY % ranks)
        else:
            complaint = launch_well(ranks)
        wrong += [complaint] if complaint else []
        slow += time.monotonic() - began > LATE_S
    seconds = time.monotonic() - start
    counts = {"wrong": len(wrong), "hung": slow, "examples": wrong[:EXAMPLES]}
    return counts | {"kinds": dict(kinds), "seconds": seconds}


def main(count: int) -> None:
    """Warm up with one launch of each kind, count open resources, launch, count again."""
    with contextlib.redirect_stdout(io.StringIO()):  # torchrun lines
        launch_well(2)
        for kind in KINDS:
            launch_badly(kind, 2, 1)
        before = traces()
        counts = launch_many(count)
        counts |= leaks(before)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]))
