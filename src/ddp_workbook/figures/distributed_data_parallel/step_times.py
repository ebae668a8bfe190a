"""Step times, speed-up, the parts of a step, timelines and losses, each with its words."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_hatch, rank_marker, series_colour
from ddp_workbook.figures.style import FAINT, INK, WIDTH, label_rows, style

QUARTILES = 4  # timings that it takes for a middle half


@style()
def step_time_plot(frame: pd.DataFrame) -> Figure:
    """Bars of median step times, one panel a size, with every timing as a dot.

    Where a bar has four timings or more, a thick line marks their middle half. `frame` is what
    `compare` or a measurement returns; its columns width, depth and batch, if any, are the size.
    Each panel has its own time axis, from zero. Raises ValueError for a table without rows.
    """
    figure, panels = _panels(frame)
    for axes, (_, timed) in panels:
        names, longest_q3 = list(timed["candidate"].unique()), 0.0
        for row, name in enumerate(names):
            timings = timed.loc[timed["candidate"] == name, "seconds"]
            q1, median, q3 = timings.quantile([0.25, 0.5, 0.75]) * 1e3
            _bar(axes, row, median, color=series_colour(row))
            if len(timings) >= QUARTILES:
                axes.hlines(row, q1, q3, color=INK, linewidth=4)
            axes.plot(
                timings * 1e3,
                [row] * len(timings),
                "o",
                markersize=4,
                markerfacecolor="white",
                markeredgecolor=INK,
            )
            _value(axes, row, median)
            longest_q3 = max(longest_q3, q3)
        label_rows(axes, names)
        # An outlier is cut off: showing it would squeeze all bars.
        axes.set_xlim(0, min(timed["seconds"].max() * 1e3, 1.5 * longest_q3) * 1.04)
        axes.set_xlabel("milliseconds a step")
    return figure


@style()
def speed_up_plot(table: pd.DataFrame, baseline: str) -> Figure:
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
    return figure


@style()
def breakdown_plot(frame: pd.DataFrame) -> Figure:
    """Stacked bars: what the parts of a step cost, one panel a size, one bar a candidate.

    `frame` has a row for each candidate and part: candidate, part, seconds, and the columns of the
    size. Raises ValueError for a table without rows.
    """
    figure, panels = _panels(frame)
    figure.set_figheight(figure.get_figheight() + 0.6)  # for the legend
    parts = list(frame["part"].unique())
    looks = {
        part: {"color": series_colour(i), "hatch": rank_hatch(i)} for i, part in enumerate(parts)
    }
    for axes, (_, bars) in panels:
        names = list(bars["candidate"].unique())
        for row, name in enumerate(names):
            left = 0.0
            for part, seconds in bars.loc[bars["candidate"] == name, ["part", "seconds"]].values:
                _bar(axes, row, seconds * 1e3, left=left, **looks[part])
                left += seconds * 1e3
            _value(axes, row, left)
        label_rows(axes, names)
        axes.set_xlim(0, bars.groupby("candidate")["seconds"].sum().max() * 1e3 * 1.02)
        axes.set_xlabel("milliseconds a step")
    keys = [
        Patch(label=part, facecolor=look["color"], edgecolor="white", hatch=look["hatch"])
        for part, look in looks.items()
    ]
    figure.legend(
        handles=keys, loc="outside upper left", ncols=min(len(parts), 4), handlelength=1.6
    )
    return figure


@style()
def timeline_plot(events: pd.DataFrame, lanes: Sequence[str], xlabel: str) -> Figure:
    """Bars from start to end in lanes, a colour and a hatch for each kind of event.

    `events` has a row for each bar: what, lane, start and end, in the unit that `xlabel` names. A
    bar too short to be seen is drawn as a mark.
    """
    figure = Figure((WIDTH, 1.1 + 0.42 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for look, (what, bars) in enumerate(events.groupby("what", sort=False)):
        rows = [lanes.index(lane) for lane in bars["lane"]]
        widths = (bars["end"] - bars["start"]).clip(events["end"].max() / 150)
        colours = {"color": series_colour(look), "hatch": rank_hatch(look)}
        axes.barh(rows, widths, left=bars["start"], label=what, **colours)
    label_rows(axes, lanes)
    axes.set_xlabel(xlabel)
    figure.legend(loc="outside upper left", ncols=5)
    return figure


def alt_text_of_step_times(frame: pd.DataFrame) -> str:
    """The median milliseconds of every bar."""
    words = []
    for size, timed in _sizes(frame):
        medians = timed.groupby("candidate", sort=False)["seconds"].median() * 1e3
        bars = ", ".join(f"{name} {_figures(ms)}" for name, ms in medians.items())
        words.append(f"{_size_text(size)}: {bars}" if size else bars)
    return f"Median milliseconds a step, with every timing as a dot. {'. '.join(words)}."


def alt_text_of_speed_up(table: pd.DataFrame, baseline: str) -> str:
    """How many times as fast as `baseline` each candidate was."""
    words = []
    for size, points in _sizes(table):
        others = points[points["candidate"] != baseline]
        said = (f"{n} {m:.2f}" for n, m in zip(others["candidate"], others["median"], strict=True))
        words.append(f"{_size_text(size)}: {', '.join(said)}")
    return f"Times as fast as {baseline}. {'. '.join(words)}."


def alt_text_of_breakdown(frame: pd.DataFrame) -> str:
    """The milliseconds of each part of each bar."""
    words = []
    for size, bars in _sizes(frame):
        for name, parts in bars.groupby("candidate", sort=False):
            pairs = zip(parts["part"], parts["seconds"] * 1e3, strict=True)
            said = ", ".join(f"{part} {_figures(ms)}" for part, ms in pairs)
            words.append(f"{_size_text(size)}, {name}: {said}")
    return f"Milliseconds of a step by part. {'. '.join(words)}."


def alt_text_of_timeline(events: pd.DataFrame) -> str:
    """How long each lane spent in each kind of event, at most."""
    lasted = events.assign(ms=events["end"] - events["start"])
    longest = lasted.groupby(["lane", "what"], sort=False)["ms"].max()
    words = ", ".join(f"{lane} {what} {ms:.0f}" for (lane, what), ms in longest.items())
    return f"A lane for each of {events['lane'].nunique()}. The longest, in milliseconds: {words}."


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


def _value(axes: Axes, row: int, number: float) -> None:
    """Write the number to the right of the panel, where no bar covers it."""
    axes.text(1.02, row, _figures(number), va="center", transform=axes.get_yaxis_transform())


def _figures(number: float) -> str:
    """Three significant digits: 0.08, 1.53, 15.3, 153."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _note(figure: Figure, frame: pd.DataFrame) -> None:
    if "machine" in frame:
        machines = "; ".join(frame["machine"].unique())
        figure.supxlabel(f"measured on {machines}", x=0.01, ha="left", fontsize=9)
