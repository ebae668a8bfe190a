"""The ledger of all strategies: two stacked bars each, by formula and measured."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_hatch, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style

KB = 1000
PEAK = "peak"  # of all parts together: a mark, not a part
BAR, APART = 0.36, 0.2


@style()
def ledger_plot(held: pd.DataFrame, rank: int = 0) -> Figure:
    """For each strategy a pale bar by formula and below it one as measured, stacked by part.

    `held` has a row for each strategy, rank and part: predicted and measured, in bytes. The part
    "peak" is drawn as a mark on the lower bar: parts do not all peak at the same moment.
    """
    mine = held[held["rank"] == rank]
    names = list(mine["strategy"].unique())
    parts = [part for part in mine["part"].unique() if part != PEAK]
    figure = Figure((WIDTH, 1.2 + 0.5 * len(names)), layout="constrained")
    axes = figure.subplots()
    for row, name in enumerate(names):
        sizes = mine[mine["strategy"] == name].set_index("part")[["predicted", "measured"]] / KB
        _stack(axes, row - APART, sizes["predicted"], parts, pale=True)
        _stack(axes, row + APART, sizes["measured"], parts, pale=False)
        peak = sizes.loc[PEAK, "measured"]
        ends = row + APART - BAR / 2, row + APART + BAR / 2
        axes.vlines(peak, *ends, color="white", linewidth=7)  # else ink on dark bars
        axes.vlines(peak, *ends, color=INK, linewidth=3)
    label_rows(axes, names)
    axes.set_xlim(0, None)
    axes.set_xlabel(f"kB on rank {rank}: upper bar by formula, lower bar measured")
    axes.grid(axis="x")
    figure.legend(handles=_keys(parts), loc="outside upper left", ncols=4, handlelength=1.6)
    return figure


def alt_text_of_ledger(held: pd.DataFrame, rank: int = 0) -> str:
    """The bars in words: what each strategy keeps, has for a moment, and its peak."""
    mine = held[held["rank"] == rank]
    words = []
    for name, sizes in mine.groupby("strategy", sort=False):
        size = sizes.set_index("part")["measured"] / KB
        kept = size[["parameters", "gradients", "optimizer"]].sum()
        words.append(
            f"{name}: keeps {kept:,.0f} kB, {size['unsharded']:,.0f} kB unsharded for a moment, "
            f"peak {size[PEAK]:,.0f} kB"
        )
    return f"Bytes on rank {rank} in a step. {'. '.join(words)}."


def _stack(axes: Axes, place: float, sizes: pd.Series, parts: Sequence[str], pale: bool) -> None:
    left = 0.0
    for index, part in enumerate(parts):
        axes.barh(place, sizes[part], BAR, left=left, **_look(index, pale))
        left += sizes[part]


def _look(index: int, pale: bool) -> dict:
    colour = series_colour(index)
    fill = tint(colour, 0.35) if pale else colour
    return {"facecolor": fill, "hatch": rank_hatch(index), "edgecolor": "white", "linewidth": 0}


def _keys(parts: Sequence[str]) -> list:
    keys = [Patch(label=part, **_look(index, False)) for index, part in enumerate(parts)]
    mark = Line2D([], [], color=INK, marker="|", markersize=12, markeredgewidth=3, linestyle="")
    mark.set_label("peak of all together")
    return [*keys, mark]
