"""How often to save: the share of time that is lost, by a formula and by chance."""

from __future__ import annotations

import numpy as np
import pandas as pd

import ddp_workbook
from manyranks import figures

GPU_MTBF_H = 50_000  # hours between failures, about what Llama 3's table gives
RUNS = 10_000
HOUR, MINUTE = 3600, 60
MINUTES = np.geomspace(1, 5760, 28)  # from save to save
# Failures, days, GPUs; see the page for the sources.
PUBLISHED_RUNS = {
    "Llama 3 405B": (419, 54, 16_384),
    "OPT-175B": (53, 56, 992),
}


def mtbf_s(gpus: int) -> float:
    """Mean seconds between failures of a job on so many GPUs."""
    return GPU_MTBF_H * HOUR / gpus


def young_interval(save: float, mean: float) -> float:
    """Seconds from save to save that lose least (Young 1974), for seconds of a save and `mean`."""
    return (2 * save * mean) ** 0.5


def lost_share(interval: np.ndarray, save: float, mean: float) -> pd.DataFrame:
    """Share of the time, 0 to 1: spent in saves, and on average half an interval a failure."""
    return pd.DataFrame({"saving": save / interval, "computed again": interval / (2 * mean)})


def simulated_lost_share(interval: np.ndarray, save: float, mean: float) -> np.ndarray:
    """The share that RUNS intervals of each length lose, failures coming by chance."""
    chance, shares = np.random.default_rng(0), []
    for seconds in interval:
        remaining, total_s = RUNS, 0.0
        while remaining:
            until = chance.exponential(mean, remaining)  # the next failure
            fails = until < seconds + save
            total_s += np.minimum(until, seconds + save).sum()
            remaining = int(fails.sum())  # these start again at their last save
        shares.append(1 - RUNS * seconds / total_s)
    return np.array(shares)


def play_interval() -> ddp_workbook.Play:
    """Sliders for the seconds of a save and the number of GPUs."""
    return ddp_workbook.play(
        shares,
        shares_plot,
        ranks=None,
        stills=[{"gpus": 512}, {"save": 600}, {"save": 5}],
        save=ddp_workbook.slider("a save takes, s", (1, 5, 20, 60, 200, 600), 60),
        gpus=ddp_workbook.slider("GPUs", (8, 64, 512, 2048, 16_384, 100_000), 16_384),
    )


def shares(save: float, gpus: int) -> pd.DataFrame:
    """By minutes from save to save: the lost shares in percent, where less than all is lost."""
    mean = mtbf_s(gpus)
    interval = MINUTES[3 * mean > MINUTES * MINUTE] * MINUTE
    table = lost_share(interval, save, mean)
    table["both"] = table.sum(axis=1)
    table["simulated"] = simulated_lost_share(interval, save, mean)
    table.index = pd.Index(interval / MINUTE, name="minutes from save to save")
    return 100 * table.where(table < 1)


@figures.house_style
def shares_plot(table: pd.DataFrame, save: float, gpus: int) -> figures.Picture:
    """A line for each loss, and Young's interval dashed."""
    mean = mtbf_s(gpus)
    best = young_interval(save, mean)
    share = lost_share(np.array([best]), save, mean).sum(axis=1)[0]
    picture = figures.lines(table, "% of the time is lost", "Lost time", log="x")
    picture.axes.axvline(best / MINUTE, color="black", linestyle="dashed", linewidth=1.2)
    picture.axes.set_ylim(0, min(100, max(4 * share * 100, 1)))
    words = (
        f"A failure every {format_duration(mean)}. Young: save every {format_duration(best)}, "
        f"then {share:.2%} is lost."
    )
    picture.axes.set_title(words, loc="left")
    picture.alt += f" {words}"
    return picture


def format_duration(seconds: float) -> str:
    """A duration in its largest unit that is at least one."""
    for unit, size in {"days": 24 * HOUR, "h": HOUR, "min": MINUTE}.items():
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def published_failures() -> pd.DataFrame:
    """Failures of published trainings, and the GPU-hours for one."""
    rows = []
    for name, (failures, days, gpus) in PUBLISHED_RUNS.items():
        mean = days * 24 * HOUR / failures
        rows.append(
            {
                "training": name,
                "GPUs": gpus,
                "failures": f"{failures} in {days} days",
                "one every": format_duration(mean),
                "GPU-hours for one": round(mean / HOUR * gpus / 1000) * 1000,
            }
        )
    return pd.DataFrame(rows)
