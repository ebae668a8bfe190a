"""How often to save: the share of time that is lost, by a formula and by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import ddp_workbook
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GPU_MTBF_H = 50_000  # hours between failures, about what Llama 3's table gives
RUNS = 10_000
HOUR, MINUTE = 3600, 60
# From save to save, in shares of Young's interval: at the ends four times as much is lost.
INTERVALS = np.geomspace(1 / 8, 8, 25)
SAVING, AGAIN, SIMULATED = "saving", "computed again", "simulated"
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
    return pd.DataFrame({SAVING: save / interval, AGAIN: interval / (2 * mean)})


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
    interval = INTERVALS * young_interval(save, mean)
    table = lost_share(interval, save, mean)
    table[SIMULATED] = simulated_lost_share(interval, save, mean)
    table.index = pd.Index(interval / MINUTE, name="minutes from save to save")
    return 100 * table[table[[SAVING, AGAIN]].sum(axis=1) < 1]


@figures.house_style
def shares_plot(table: pd.DataFrame, save: float, gpus: int) -> figures.Picture:
    """Two areas, one on the other, for the losses; points for the simulation; Young's interval."""
    from matplotlib.ticker import LogLocator

    mean = mtbf_s(gpus)
    best = young_interval(save, mean)
    share = lost_share(np.array([best]), save, mean).sum(axis=1)[0]
    words = (
        f"A failure every {format_duration(mean)}. Young: save every {format_duration(best)}, "
        f"then {share:.2%} is lost."
    )
    if table.empty:
        return figures.Picture(_empty(words), words)
    figure = figures.Figure((figures.WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    both = table[SAVING] + table[AGAIN]
    looks = (tint(series_colour(1), 0.55), tint(series_colour(5), 0.55))
    axes.stackplot(table.index, table[SAVING], table[AGAIN], colors=looks)
    axes.plot(table.index, both, color=INK, linewidth=1.4)
    axes.plot(table.index, table[SIMULATED], "o", color="white", markeredgecolor=INK, markersize=5)
    axes.axvline(best / MINUTE, color=INK, linestyle="dashed", linewidth=1.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set(
        xlabel="minutes from save to save",
        ylabel="% of the time is lost",
        xlim=(table.index[0], table.index[-1]),
        ylim=(0, None),
    )
    first, last = table.iloc[1], table.iloc[-2]
    axes.text(table.index[1], first[SAVING] / 2, " saving", va="center")
    axes.text(
        table.index[-2], last[SAVING] + last[AGAIN] / 4, "computed again ", va="center", ha="right"
    )
    axes.set_title(f"{words}\nLine: the formula. Points: the simulation.", loc="left")
    ends = [
        f"{name} {column.iloc[0]:.1f} to {column.iloc[-1]:.1f} %" for name, column in table.items()
    ]
    about = (
        f"Lost time from {table.index[0]:.1f} to {table.index[-1]:.0f} minutes from save to save"
    )
    return figures.Picture(figure, f"{about}: {', '.join(ends)}. {words}")


def _empty(words: str) -> Figure:
    """A picture of nothing but its words: every interval loses all of the time."""
    axes = figures.sheet(figures.WIDTH, 0.6)
    axes.text(0.1, 0.3, f"{words} No interval leaves any time.", va="center")
    return axes.figure


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
                "training run": name,
                "GPUs": gpus,
                "failures": f"{failures} in {days} days",
                "one every": format_duration(mean),
                "GPU-hours for one": round(mean / HOUR * gpus / 1000) * 1000,
            }
        )
    return pd.DataFrame(rows)
