"""Timings that can be compared: warmed up, synchronised with the device, taken in turns."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from numbers import Real

import pandas as pd
import torch

from ddp_workbook.errors import WorkbookError

MEASURED = ("round", "seconds")  # every other column of a timings table says what was timed


class TimingError(WorkbookError, ValueError):
    """A timing that cannot be taken as asked, or a table that holds no timings."""


def time_step(
    step: Callable[[], object],
    *,
    warm_up: int = 2,
    repeats: int = 5,
    device: torch.device | str | None = None,
) -> list[float]:
    """Seconds of each of `repeats` calls of `step()`, after `warm_up` calls that are not counted.

    A GPU runs behind Python: the clock is read only after `device` has finished. Without `device`
    that is the current GPU, if this process has used one. Raises TimingError on counts that are
    no whole numbers, on `repeats` below 1 and on a `step` that cannot be called.
    """
    _whole(warm_up, "warm_up", least=0)
    _whole(repeats, "repeats", least=1)
    if not callable(step):
        raise TimingError(f"step is {step!r}. Pass a function that does one step: lambda: f(x).")
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
    """Time the candidates in turns: a table of candidate, round, seconds, one row a timing.

    Each candidate is called without arguments, measures itself (`time_step` helps) and returns
    its seconds, one number or several. Every round calls all of them and starts with another one,
    so that a machine which grows slower or busier does so for all alike. `warm_up` rounds go before
    and are left out; 0 is for candidates that start and warm up processes of their own. No round is
    begun that would end later than `budget` seconds from now, except the first one. Raises
    TimingError on bad candidates or rounds; a candidate's own errors pass through.
    """
    _whole(rounds, "rounds", least=1)
    _whole(warm_up, "warm_up", least=0)
    _functions(candidates)
    names = list(candidates)
    rows, start, longest = [], time.perf_counter(), 0.0
    for number in range(1 - warm_up, rounds + 1):
        begun = time.perf_counter()
        if number > 1 and begun - start + longest > budget:
            break
        turn = (number - 1) % len(names)
        for name in names[turn:] + names[:turn]:
            seconds = _checked(candidates[name](), name)
            rows += [(name, number, one) for one in seconds if number > 0]
        longest = max(longest, time.perf_counter() - begun)
    return pd.DataFrame(rows, columns=["candidate", "round", "seconds"])


def summary(frame: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """Median, quartiles and number of timings (seconds) of each candidate, in order of appearance.

    Every column but round, seconds and a single machine says what was timed. With `baseline`, a
    candidate's name, `ratio` is the median divided by the baseline's: 2.0 took twice as long.
    Raises TimingError where the columns or the baseline are missing.
    """
    keys = _keys(frame)
    table = _quartiles(frame, keys, "seconds")
    if baseline is not None:
        table["ratio"] = table["median"] / _of_baseline(table, keys, baseline, "median")
    return table


def speed_up(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """How many times as fast as `baseline` each candidate was: median and quartiles of the rounds.

    Each round is compared with the baseline's same round: they ran side by side, so what slowed
    one has mostly slowed the other. A column `machine` is kept. Raises TimingError where columns or
    the baseline are missing.
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


def _whole(value: int, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TimingError(f"{name} must be a whole number, {least} or more; it is {value!r}.")


def _functions(candidates: Mapping) -> None:
    if not isinstance(candidates, Mapping) or not candidates:
        raise TimingError("candidates must name at least one function: {'name': function, ...}.")
    for name, candidate in candidates.items():
        if not callable(candidate):
            raise TimingError(
                f"The candidate {name!r} is {candidate!r}, which cannot be called. "
                "Pass the function itself, without brackets after its name."
            )


def _checked(seconds: float | Iterable[float], name: str) -> list[float]:
    several = list(seconds) if isinstance(seconds, Iterable) else [seconds]
    if not several or not all(map(_is_time, several)):
        raise TimingError(
            f"The candidate {name!r} returned {seconds!r}. It must return the "
            "seconds it took, one number or a list: return time_step(step)."
        )
    return [float(one) for one in several]


def _is_time(value: object) -> bool:
    return (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def _keys(frame: pd.DataFrame) -> list[str]:
    missing = {"candidate", *MEASURED} - set(getattr(frame, "columns", ()))
    if missing:
        raise TimingError(
            f"This is no table of timings: no column {', '.join(sorted(missing))}. "
            "compare() makes one."
        )
    if frame.empty:
        raise TimingError("This table holds no timings.")
    one_machine = "machine" in frame and frame["machine"].nunique() == 1  # then it tells nothing
    left_out = {*MEASURED, "machine"} if one_machine else set(MEASURED)
    return [column for column in frame.columns if column not in left_out]


def _quartiles(frame: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    grouped = frame.groupby(keys, sort=False)[value]
    return grouped.agg(
        n="count", q1=lambda s: s.quantile(0.25), median="median", q3=lambda s: s.quantile(0.75)
    ).reset_index()


def _of_baseline(table: pd.DataFrame, keys: list[str], baseline: str, value: str) -> pd.Series:
    same = [key for key in keys if key != "candidate"]
    reference = table[table["candidate"] == baseline]
    if reference.empty:
        raise TimingError(
            f"No candidate is named {baseline!r}. There are: "
            + ", ".join(map(repr, table["candidate"].unique()))
            + "."
        )
    if not same:
        return pd.Series(reference[value].iloc[0], index=table.index)
    found = table[same].merge(reference[[*same, value]], on=same, how="left")
    return found[value].set_axis(table.index)
