"""Stacked bars: a row of a table is a bar, a column is a part of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyranks.figures.palette import part_look, rank_look, series_look
from manyranks.figures.style import WIDTH, FillStyle, Picture, label_rows, name_looks, number

MAX_BARS = 128  # bars whose names can be told apart
BAR_PITCH, BAR_THICKNESS = 0.42, 0.66  # inches from bar to bar; share of that which is filled


def bars(
    tables: pd.DataFrame | Mapping[str, pd.DataFrame],
    unit: str,
    about: str,
    *,
    by: Literal["part", "rank", "candidate"] = "part",
    upright: bool = False,
    totals: Callable[[float], str] | None = None,
    across: int | None = None,
) -> Picture:
    """A bar for each row of a table, stacked from its columns; a panel for each table.

    `unit` labels the axis: what the numbers are. `about` begins the alt text, a sentence without
    its full stop; the bars follow in words. `by` says what has a look of its own: a part (a column,
    by its name), a rank (row r is rank r) or a candidate (a row). Upright bars stand side by side.
    `totals` writes a word at the end of each bar. `across` panels stand side by side, by default
    all. A nan is drawn as no bar, and is "none" in words.

    Raises ValueError for a table without rows or columns, and for more bars than can be named.
    """
    panels = tables if isinstance(tables, Mapping) else {"": tables}
    _check(panels)
    rows = max(map(len, panels.values()))
    parts = list(dict.fromkeys(part for table in panels.values() for part in table))
    legend = by == "part" and len(parts) > 1
    wide = min(across or len(panels), len(panels))
    down = -(-len(panels) // wide)
    height = 3.7 if upright else 0.8 + BAR_PITCH * rows + 0.25 * any(panels)
    figure = Figure((WIDTH, down * height + 0.3 * legend), layout="constrained")
    grid = figure.subplots(down, wide, sharey=True, squeeze=False)
    for unused in grid.flat[len(panels) :]:
        unused.remove()
    for axes, (title, table) in zip(grid.flat, panels.items(), strict=False):
        for place, (_, sizes) in enumerate(table.iterrows()):
            end = stack(axes, place, sizes, _looks(by, place, sizes.index), upright=upright)
            if totals:
                _label_end(axes, place, end, totals(end), upright)
        axes.set_title(title)
        axes.grid(axis="y" if upright else "x")
        _name_bars(axes, table.index, unit, upright)
        axes.margins(**{"y" if upright else "x": 0.12 if totals else 0.02})
    if upright:
        grid[0, 0].set_ylabel(unit)
    if legend:
        name_looks(figure, {part: part_look(part) for part in parts})
    return Picture(figure, f"{about}, {unit}. {describe_bars(panels)}.")


def stack(
    axes: Axes,
    place: float,
    sizes: pd.Series,
    looks: Sequence[FillStyle],
    *,
    thick: float = BAR_THICKNESS,
    upright: bool = False,
) -> float:
    """Draw one bar of these parts at `place`, one after the other; return where it ends."""
    end = 0.0
    for size, look in zip(sizes.fillna(0.0), looks, strict=True):
        if upright:
            axes.bar(place, size, thick, bottom=end, **look)
        else:
            axes.barh(place, size, thick, left=end, **look)
        end += size
    return end


def describe_bars(panels: Mapping[str, pd.DataFrame]) -> str:
    """Every bar in words: "DDP: rank 0: parameters 100, gradients 100; rank 1: …"; no part of 0."""
    words = []
    for title, table in panels.items():
        bars = []
        for name, sizes in table.iterrows():
            nonzero = sizes[sizes != 0]
            alone = len(table.columns) == 1
            parts = ", ".join(
                number(size) if alone else f"{part} {number(size)}"
                for part, size in nonzero.items()
            )
            bars.append(f"{_flat(name)}{' ' if alone else ': '}{parts or 'nothing'}")
        words.append((f"{title}: " if title else "") + "; ".join(bars))
    return ". ".join(words)


def _check(panels: Mapping[str, pd.DataFrame]) -> None:
    if not panels or any(table.empty for table in panels.values()):
        raise ValueError("There is nothing to draw: the table has no rows or no columns.")
    most = max(map(len, panels.values()))
    if most > MAX_BARS:
        raise ValueError(f"{most} bars do not fit into a picture: draw {MAX_BARS} or fewer.")


def _looks(by: str, place: int, parts: Sequence[str]) -> list[FillStyle]:
    if by == "part":
        return [part_look(part) for part in parts]
    return [rank_look(place) if by == "rank" else series_look(place)] * len(parts)


def _name_bars(axes: Axes, names: pd.Index, unit: str, upright: bool) -> None:
    if not upright:
        label_rows(axes, [_flat(name) for name in names])
        axes.set_xlabel(unit)
        return
    every = -(-len(names) // 16)  # more names would run into each other
    places = range(0, len(names), every)
    axes.set_xticks(places, [_flat(names[place]) for place in places])
    axes.tick_params(axis="x", length=0)


def _label_end(axes: Axes, place: float, end: float, words: str, upright: bool) -> None:
    where: FillStyle = {"ha": "center", "va": "bottom"} if upright else {"va": "center"}
    axes.text(*((place, end) if upright else (end, place)), f" {words}", size=10, **where)


def _flat(name: object) -> str:
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
