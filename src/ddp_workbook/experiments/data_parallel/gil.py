"""What two threads gain: three jobs, each done twice, in one thread or in two at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pandas as pd
import torch

from manyranks import figures
from manyranks.recording.timing import compare, time_step

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


def compare_thread_counts(rounds: int = ROUNDS) -> pd.DataFrame:
    """Milliseconds for doing each job twice: a row a job, columns 1 thread, 2 threads and ratio.

    The fastest of a few timings, taken in turns. Each thread uses one core.
    """
    races: dict = {(job.__name__, n): partial(_twice, job, n) for job in JOBS for n in (1, 2)}
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


@figures.house_style
def two_threads_plot(table: pd.DataFrame) -> figures.Picture:
    """For each job the time with two threads, as a share of the time with one.

    Lines mark 1, where two threads gain nothing, and 0.5, where they gain all they can.
    """
    unit = "time of two threads / time of one (0.5: the best possible, 1: nothing gained)"
    about = "Each of three jobs, done twice"
    picture = figures.bars(table[["ratio"]], unit, about, by="candidate")
    for row, (name, job) in enumerate(table.iterrows()):
        times = f"{job['1 thread']:.3g} → {job['2 threads']:.3g} ms"
        picture.axes.text(max(job["ratio"], 1) + 0.03, row, times, va="center")
        picture.alt += f" In {name}: {times}."
    for place in (0.5, 1):
        picture.axes.axvline(place, color="black", linewidth=1.2, linestyle="--")
    picture.axes.set_xlim(0, max(1.0, table["ratio"].max()) * 1.35)
    return picture


def _twice(job: Callable, count: int) -> list[float]:
    """Seconds for doing the job two times, shared out to so many threads."""
    one_core = {"initializer": torch.set_num_threads, "initargs": (1,)}  # a new thread has no limit
    with ThreadPoolExecutor(count, **one_core) as pool:
        return time_step(lambda: list(pool.map(job, range(2))), repeats=3)
