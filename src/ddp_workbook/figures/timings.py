"""Step times, and how many times as fast something is: tables of `recording.timing`, drawn."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures import drawn
from ddp_workbook.figures.palette import rank_marker, series_colour
from ddp_workbook.figures.style import (
    FAINT,
    INK,
    WIDTH,
    Picture,
    label_rows,
    number,
)

LONGEST = 1.6  # times the longest median: where a panel ends, so that no outlier squeezes the bars


@drawn
def step_time_plot(frame: pd.DataFrame) -> Picture:
    """Bars of median step times, one panel a size; a thick line from first to third quartile.

    `frame` is what `compare` or a measurement returns; its columns width, depth and batch, if any,
    are the size.
    Each panel has its own time axis, from zero. Raises ValueError for a table without rows.
    """
    figure, panels = _panels(frame)
    for axes, (_, timed) in panels:
        names, ends = list(timed["candidate"].unique()), []
        for row, name in enumerate(names):
            timings = timed.loc[timed["candidate"] == name, "seconds"]
            q1, median, q3 = timings.quantile([0.25, 0.5, 0.75]) * 1e3
            _bar(axes, row, median, color=series_colour(row))
            axes.hlines(row, q1, q3, color=INK, linewidth=4)
            _value(axes, row, median)
            ends.append((median, q3))
        label_rows(axes, names)
        medians, thirds = map(max, zip(*ends, strict=True))
        axes.set_xlim(0, min(thirds, LONGEST * medians) * 1.04)
        axes.set_xlabel("milliseconds a step")
    return Picture(figure, _words_of_step_times(frame))


@drawn
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
    return Picture(figure, _words_of_speed_up(table, baseline))


def _words_of_step_times(frame: pd.DataFrame) -> str:
    words = []
    for size, timed in _sizes(frame):
        medians = timed.groupby("candidate", sort=False)["seconds"].median() * 1e3
        bars = ", ".join(f"{name} {number(ms)}" for name, ms in medians.items())
        words.append(f"{_size_text(size)}: {bars}" if size else bars)
    return f"Median milliseconds a step, {'. '.join(words)}."


def _words_of_speed_up(table: pd.DataFrame, baseline: str) -> str:
    words = []
    for size, points in _sizes(table):
        others = points[points["candidate"] != baseline]
        said = (f"{n} {m:.2f}" for n, m in zip(others["candidate"], others["median"], strict=True))
        words.append(f"{_size_text(size)}: {', '.join(said)}")
    return f"Times as fast as {baseline}. {'. '.join(words)}."


def _panels(frame: pd.DataFrame) -> tuple[Figure, Iterator]:
    """A figure with one panel a size, two in a row, and (axes, (size, rows of the table))."""
    if frame.empty:
        raise ValueError("There are no rows to draw.")
    sizes = list(_sizes(frame))
    across = min(len(sizes), 2)
    down = math.ceil(len(sizes) / across)
    bars = max(part["candidate"].nunique() for _, part in sizes)
    figure = Figure((WIDTH, down * (0.9 + 0.42 * bars) + 0.4), layout="constrained")
    grid_of_axes = figure.subplots(down, across, sharey=True, squeeze=False)
    for spare in grid_of_axes.flat[len(sizes) :]:
        spare.remove()
    for axes, (size, _) in zip(grid_of_axes.flat, sizes, strict=False):
        axes.set_title(_size_text(size))
        axes.grid(axis="x")
    _note(figure, frame)
    return figure, zip(grid_of_axes.flat, sizes, strict=False)


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


def _bar(axes: Axes, row: int, width: float, left: float = 0.0, **look) -> None:
    axes.barh(row, width, left=left, height=0.66, edgecolor="white", linewidth=0, **look)


def _value(axes: Axes, row: int, value: float) -> None:
    """Write the number to the right of the panel, where no bar covers it."""
    axes.text(1.02, row, number(value), va="center", transform=axes.get_yaxis_transform())


def _note(figure: Figure, frame: pd.DataFrame) -> None:
    if "machine" in frame:
        machines = "; ".join(frame["machine"].unique())
        figure.supxlabel(f"measured on {machines}", x=0.01, ha="left", fontsize=9)
