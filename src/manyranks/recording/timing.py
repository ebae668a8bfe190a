"""Comparable timings: after warm-up, synchronised with the device, candidates interleaved."""

import math
import time
from collections.abc import Callable, Iterable, Mapping

import pandas as pd
import torch

# Every other column of a timings table describes the case.
MEASUREMENT_COLUMNS = ("round", "seconds")


def time_step(
    step: Callable[[], object],
    *,
    warm_up: int = 2,
    repeats: int = 5,
    device: torch.device | str | None = None,
) -> list[float]:
    """Time each of `repeats` calls of `step()` in seconds, after `warm_up` calls that do not count.

    A GPU runs behind Python: the clock is read only after `device` has finished. Without `device`
    that is the current GPU, if this process has used one. Raises ValueError for `repeats` below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; it must be 1 or more.")
    for _ in range(warm_up):  # first calls allocate memory, start threads, load kernels
        step()
    return [_seconds(step, device) for _ in range(repeats)]


def synchronise(device: torch.device | str | None = None) -> None:
    """Wait until `device` (None: the current GPU, if this process has used one) is idle."""
    kind = torch.device(device).type if device is not None else None
    if kind == "cuda" or (kind is None and torch.cuda.is_initialized()):
        torch.cuda.synchronize(device)
    elif kind == "mps" or (kind is None and torch.backends.mps.is_available()):
        torch.mps.synchronize()


def compare(
    candidates: Mapping[str, Callable[[], float | Iterable[float]]],
    rounds: int = 5,
    *,
    warm_up: int = 1,
    budget: float = math.inf,
) -> pd.DataFrame:
    """Time the candidates interleaved; return a table of candidate, round, seconds: a row a timing.

    Each candidate is called without arguments, times itself (`time_step` helps) and returns
    seconds, one number or several. Every round calls all candidates and starts with a different
    one, so a slowdown of the machine hits all of them. The first `warm_up` rounds are not recorded;
    0 suits candidates that start and warm up their own processes. A round that would end more than
    `budget` seconds from now is not started, except the first. Raises ValueError for `rounds`
    below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; it must be 1 or more.")
    names = list(candidates)
    rows, start, longest = [], time.perf_counter(), 0.0
    for number in range(1 - warm_up, rounds + 1):
        round_start = time.perf_counter()
        if number > 1 and round_start - start + longest > budget:
            break
        turn = (number - 1) % len(names)
        for name in names[turn:] + names[:turn]:
            timing = candidates[name]()
            seconds = timing if isinstance(timing, Iterable) else [timing]
            rows += [(name, number, float(value)) for value in seconds if number > 0]
        longest = max(longest, time.perf_counter() - round_start)
    return pd.DataFrame(rows, columns=["candidate", "round", "seconds"])


def summary(frame: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """Median, quartiles and number of timings (seconds) of each candidate, in order of appearance.

    Rows are grouped by every column except round, seconds and a machine that is always the same.
    With `baseline`, a candidate's name, `ratio` is the median divided by the baseline's: 2.0 took
    twice as long. Raises ValueError if the table has no such candidate.
    """
    keys = _keys(frame)
    table = _quartiles(frame, keys, "seconds")
    if baseline is not None:
        table["ratio"] = table["median"] / _of_baseline(table, keys, baseline, "median")
    return table


def speed_up(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """How many times as fast as `baseline` each candidate was: median and quartiles of the rounds.

    Each round is compared with the baseline's same round: they ran one after the other, so what
    slowed one has mostly slowed the other. A column `machine` is kept. Raises ValueError if the
    table has no such candidate.
    """
    keys = _keys(frame)
    rounds = frame.groupby([*keys, "round"], sort=False, as_index=False)["seconds"].median()
    ratio = _of_baseline(rounds, [*keys, "round"], baseline, "seconds") / rounds["seconds"]
    table = _quartiles(rounds.assign(ratio=ratio), keys, "ratio")
    if "machine" in frame and "machine" not in keys:
        table["machine"] = frame["machine"].iloc[0]
    return table


def _seconds(step: Callable[[], object], device: torch.device | str | None) -> float:
    synchronise(device)  # else the step would pay for work queued before it
    start = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - start


def _keys(frame: pd.DataFrame) -> list[str]:
    one_machine = "machine" in frame and frame["machine"].nunique() == 1  # then it tells nothing
    excluded = {*MEASUREMENT_COLUMNS, "machine"} if one_machine else set(MEASUREMENT_COLUMNS)
    return [column for column in frame.columns if column not in excluded]


def _quartiles(frame: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    grouped = frame.groupby(keys, sort=False)[value]
    return grouped.agg(
        n="count", q1=lambda s: s.quantile(0.25), median="median", q3=lambda s: s.quantile(0.75)
    ).reset_index()


def _of_baseline(table: pd.DataFrame, keys: list[str], baseline: str, value: str) -> pd.Series:
    same = [key for key in keys if key != "candidate"]
    reference = table[table["candidate"] == baseline]
    if reference.empty:
        raise ValueError(f"{baseline!r} is none of {', '.join(table['candidate'].unique())}.")
    if not same:
        return pd.Series(reference[value].iloc[0], index=table.index)
    baselines = table[same].merge(reference[[*same, value]], on=same, how="left")
    return baselines[value].set_axis(table.index)
