"""Launches in a row, 1 in 10 failing on purpose in another way: is the verdict right each time?"""

import re
import time
from dataclasses import dataclass, field

from ddp_workbook.errors import WorkbookError
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.serialization import Call
from tests.workers import faults, hangs, launching, results

# Worker, its arguments, and what the first line of the page must say.
FAILURES = [
    (faults.one_fails, ("raise",), r"Rank 1 of 2 failed: ValueError: no such digit"),
    (faults.one_fails, ("exit",), r"Rank 1 of 2 left the process with exit code 3"),
    (faults.one_fails, ("kill", 0), r"Rank 0 of 2 was ended by SIGKILL"),
    (faults.one_fails, ("segfault",), r"Rank 1 of 2 was ended by SIGSEGV"),
    (faults.returns_early, (), r"Rank 0 of 2 waited for a rank that had gone: rank 1 had already"),
    (faults.shapes_differ, (), r"Rank [01] of 2 was ended by SIGABRT"),
    (hangs.under_if_rank_0, (), r"2 of 2 ranks did not finish within 1 s"),
    (hangs.c_loop, (), r"2 of 2 ranks did not finish within 1 s"),
    (results.one_generator, (), r"Rank 1 of 2: its result cannot be sent back"),
    (faults.fails_before_the_group, ("raise", 0), r"Rank 0 of 2 failed: ValueError"),
]


@dataclass
class Record:
    """What `many` saw: the wrong verdicts, and the seconds of each good and each failing launch."""

    wrong: list[str] = field(default_factory=list)
    good: list[float] = field(default_factory=list)
    failing: list[float] = field(default_factory=list)


def many(count: int) -> Record:
    """Launch `count` times on 2 ranks."""
    record = Record()
    for number in range(count):
        start = time.perf_counter()
        if number % 10 == 9:
            worker, args, page = FAILURES[number // 10 % len(FAILURES)]
            wrong = verdict_on(worker, args, page)
            record.failing.append(time.perf_counter() - start)
        else:
            wrong = (
                "" if run_ranks(Call(launching.all_reduce), 2, 30, quiet=True) == [3, 3] else "3"
            )
            record.good.append(time.perf_counter() - start)
        if wrong:
            record.wrong.append(f"launch {number}: {wrong}")
    return record


def verdict_on(worker, args: tuple, page: str) -> str:
    """The page of a failing launch where it does not begin as it must, else ""."""
    try:
        timeout = 1 if worker in (hangs.under_if_rank_0, hangs.c_loop) else 30
        return f"returned {run_ranks(Call(worker, args), 2, timeout, quiet=True)}"
    except WorkbookError as error:
        return "" if re.match(page, str(error)) else str(error)
