"""What two threads gain: three jobs, each done twice, in one thread or in two at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pandas as pd
import torch

from ddp_workbook.recording.timing import compare, time_step

ROUNDS = 3


def loop_in_python(_: int) -> int:
    """Plain Python: the lock is held all the time."""
    return sum(i * i for i in range(150_000))


def many_small_products(_: int) -> None:
    """Two thousand products of 16 by 16 matrices."""
    small = torch.ones(16, 16)
    for _ in range(2_000):
        small @ small


def one_large_product(_: int) -> None:
    """One product of 1000 by 1000 matrices."""
    large = torch.ones(1000, 1000)
    large @ large


JOBS = (loop_in_python, many_small_products, one_large_product)


def two_threads_against_one(rounds: int = ROUNDS) -> pd.DataFrame:
    """Milliseconds for doing each job twice: a row a job, columns 1 thread, 2 threads and ratio.

    The fastest of a few timings, taken in turns. Each thread uses one core.
    """
    races = {(job.__name__, n): partial(_twice, job, n) for job in JOBS for n in (1, 2)}
    times = compare(races, rounds=rounds)
    fastest = times.groupby("candidate", sort=False)["seconds"].min() * 1e3
    rows = {
        job.__name__.replace("_", " ").replace("python", "Python"): [
            fastest[job.__name__, n] for n in (1, 2)
        ]
        for job in JOBS
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["1 thread", "2 threads"])
    return table.assign(ratio=table["2 threads"] / table["1 thread"]).rename_axis("job")


def _twice(job: Callable, count: int) -> list[float]:
    """Seconds for doing the job two times, shared out to so many threads."""
    one_core = {"initializer": torch.set_num_threads, "initargs": (1,)}  # a new thread has no limit
    with ThreadPoolExecutor(count, **one_core) as pool:
        return time_step(lambda: list(pool.map(job, range(2))), repeats=3)
