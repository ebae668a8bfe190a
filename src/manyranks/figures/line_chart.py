"""Lines: a column of a table against its index."""

from collections.abc import Mapping
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from manyranks.figures.palette import INK, rank_colour, rank_marker, series_colour
from manyranks.figures.style import WIDTH, Picture, number

SERIES_ORDER = (0, 2, 4, 3, 5, 1)  # the palette's series, those that are farthest apart first
MAX_TICKS = 12
LEGEND_LINE_HEIGHT = 0.24  # inches for a line of it; two fit anyway


def lines(
    tables: pd.DataFrame | Mapping[str, pd.DataFrame],
    unit: str,
    about: str,
    *,
    by: Literal["rank", "candidate"] = "candidate",
    log: str = "",
    share: bool = True,
) -> Picture:
    """A line for each column of a table, against its index; a panel for each table.

    The index's name labels the axis across, `unit` the other one. `by` says what has a look of its
    own: a candidate, or a rank (column r is rank r; a column that is not named after its rank, such
    as "whole batch", is black). `log` names the logarithmic axes: "", "x", "y"
    or "xy". Panels have one axis upwards if they `share` it. `about` begins the alt text, a
    sentence without its full stop; the first and the last value of each line follow.

    Raises ValueError for a table without rows or columns, or with nothing but nan.
    """
    panels = tables if isinstance(tables, Mapping) else {"": tables}
    if not panels or any(table.isna().all(axis=None) for table in panels.values()):
        raise ValueError("There is nothing to draw: a table has no values.")
    most = max(len(table.columns) for table in panels.values())
    figure = Figure((WIDTH, 3.5 + LEGEND_LINE_HEIGHT * max(0, most // 4 - 1)), layout="constrained")
    across = figure.subplots(1, len(panels), sharey=share, squeeze=False)[0]
    for axes, (title, table) in zip(across, panels.items(), strict=True):
        for place, name in enumerate(table):
            look = _look(by, place, str(name), len(table))
            axes.plot(table.index, table[name], label=str(name), **look)
        axes.set(title=title, xlabel=table.index.name or "")
        axes.grid(axis="y")
        _logarithmic(axes, log, table.index)
    across[0].set_ylabel(unit)
    picture = Picture(figure, f"{about}, {unit}. {_describe_lines(panels)}.")
    picture.update_legend()
    return picture


def _logarithmic(axes: Axes, log: str, places: pd.Index) -> None:
    """Logarithmic axes with plain numbers: across at few `places`, upwards at 1, 2, 5, 10, …"""
    if "x" in log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        if len(places) <= MAX_TICKS:
            axes.set_xticks(places)
    if "y" in log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
    if log:
        axes.minorticks_off()


def _look(by: str, place: int, name: str, values: int) -> dict[str, Any]:
    if by == "rank" and not name.startswith(f"rank {place}"):
        return {"color": INK, "linewidth": 1.2}
    colour = rank_colour(place) if by == "rank" else series_colour(SERIES_ORDER[place % 6])
    # An offset for each line: the markers stay apart where lines coincide.
    every = (place, 1 + values // 10) if place < values else 1
    return {"color": colour, "marker": rank_marker(place), "markevery": every}


def _describe_lines(panels: Mapping[str, pd.DataFrame]) -> str:
    """Each line's first and last value: "rank 0 from 2.3 to 0.4"."""
    words = []
    for title, table in panels.items():
        ends = [(name, column.dropna()) for name, column in table.items()]
        texts = [
            f"{name} from {number(values.iloc[0])} to {number(values.iloc[-1])}"
            for name, values in ends
            if len(values)
        ]
        words.append((f"{title}: " if title else "") + ", ".join(texts))
    return ". ".join(words)
