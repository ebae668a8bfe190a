"""Step times, and how many times as fast something is: tables of `recording.timing`, drawn."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyranks.figures import house_style
from manyranks.figures.bar_chart import bars
from manyranks.figures.palette import rank_marker, series_colour
from manyranks.figures.style import (
    FAINT,
    INK,
    WIDTH,
    Picture,
    beside,
    label_rows,
    number,
)

# A panel ends at so many times its longest median, so that no outlier squeezes the bars.
MAX_AXIS_RATIO = 1.6


@house_style
def step_time_plot(frame: pd.DataFrame) -> Picture:
    """Bars of median step times, one panel a size; a thick line from first to third quartile.

    `frame` is what `compare` or a measurement returns; its columns width, depth and batch, if any,
    are the size.
    Each panel has its own time axis, from zero. Raises ValueError for a table without rows.
    """
    sizes = dict((_size_text(size), timings) for size, timings in _sizes(frame))
    medians = {
        size: 1e3 * timings.groupby("candidate", sort=False)[["seconds"]].median()
        for size, timings in sizes.items()
    }
    about = "Median times"
    picture = bars(medians, "milliseconds a step", about, by="candidate", across=2)
    for axes, timings in zip(picture.figure.axes, sizes.values(), strict=True):
        quartiles = timings.groupby("candidate", sort=False)["seconds"].quantile([0.25, 0.5, 0.75])
        quartiles = 1e3 * quartiles.unstack()
        for row, (q1, median, q3) in enumerate(quartiles.to_numpy()):
            axes.hlines(row, q1, q3, color=INK, linewidth=4)
            beside(axes, row, number(median))
        longest = min(quartiles[0.75].max(), MAX_AXIS_RATIO * quartiles[0.5].max())
        axes.set_xlim(0, 1.04 * longest)
    _note(picture.figure, frame)
    return picture


@house_style
def speed_up_plot(table: pd.DataFrame, baseline: str) -> Picture:
    """How many times as fast as `baseline` each candidate was, per size, with quartiles.

    `table` is what `speed_up(timings, baseline)` returns. Points right of the line at 1 are faster
    than `baseline`. Each size has a band of its own, so that its label names all points in it.
    """
    sizes = list(_sizes(table))
    names = [name for name in table["candidate"].unique() if name != baseline]
    figure = Figure((WIDTH, 1.3 + 0.25 * len(sizes) * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(1, color=INK, linewidth=1.2)
    for row in range(0, len(sizes), 2):
        axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.4, linewidth=0, zorder=0)
    looks = {name: look for look, name in enumerate(table["candidate"].unique())}
    for index, name in enumerate(names):
        rows = np.arange(len(sizes)) + (index - (len(names) - 1) / 2) * 0.24
        _points(axes, rows, table[table["candidate"] == name], name, looks[name])
    label_rows(axes, [_size_text(size, "\n") for size, _ in sizes])
    axes.set_xlim(0, max(1.25, table["q3"].max() * 1.08))
    axes.set_xlabel(f"times as fast as {baseline}")
    axes.grid(axis="x")
    figure.legend(loc="outside upper left", ncols=len(names), handletextpad=0.2, columnspacing=1.2)
    _note(figure, table)
    return Picture(figure, _describe_speed_up(table, baseline))


def _describe_speed_up(table: pd.DataFrame, baseline: str) -> str:
    words = []
    for size, points in _sizes(table):
        others = points[points["candidate"] != baseline]
        texts = (f"{n} {m:.2f}" for n, m in zip(others["candidate"], others["median"], strict=True))
        words.append(f"{_size_text(size)}: {', '.join(texts)}")
    return f"Times as fast as {baseline}. {'. '.join(words)}."


def _sizes(table: pd.DataFrame) -> Iterator[tuple[dict, pd.DataFrame]]:
    columns = [column for column in ("width", "depth", "batch") if column in table]
    if not columns:
        yield {}, table
        return
    for values, part in table.groupby(columns, sort=False):
        yield dict(zip(columns, values, strict=True)), part


def _points(axes: Axes, rows: np.ndarray, points: pd.DataFrame, name: str, look: int) -> None:
    colour = series_colour(look)
    axes.hlines(rows, points["q1"], points["q3"], color=colour, linewidth=2.5)
    axes.plot(points["median"], rows, rank_marker(look), color=colour, label=name)


def _size_text(size: dict, separator: str = ", ") -> str:
    return separator.join(f"{column} {value}" for column, value in size.items())


def _note(figure: Figure, frame: pd.DataFrame) -> None:
    if "machine" in frame:
        machines = "; ".join(frame["machine"].unique())
        figure.supxlabel(f"measured on {machines}", x=0.01, ha="left", fontsize=9)
