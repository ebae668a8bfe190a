"""Speed-up and efficiency, as a table of results gives them."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import series_colour
from ddp_workbook.figures.style import FAINT, WIDTH, style

MARKERS = ("o", "s", "^", "D")


@style()
def scaling_plot(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Two panels, speed-up and efficiency over the ranks, a line for each named table.

    A table has the columns `ranks`, `speed-up` and `efficiency`, as `experiments.scaling` makes
    them.
    """
    figure = Figure((WIDTH, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    most = max(table["ranks"].max() for table in tables.values())
    ticks = sorted({n for table in tables.values() for n in table["ranks"]})
    left.plot([1, most], [1, most], color=FAINT, linestyle="--", linewidth=1.6)
    left.annotate("perfect", (most, most), (-6, 2), textcoords="offset points", ha="right")
    right.axhline(1, color=FAINT, linestyle="--", linewidth=1.6)
    for number, (name, table) in enumerate(tables.items()):
        look = {"color": series_colour(2 * number), "marker": MARKERS[number % len(MARKERS)]}
        left.plot(table["ranks"], table["speed-up"], label=name, **look)
        right.plot(table["ranks"], table["efficiency"], **look)
    left.set(xlabel="ranks", ylabel="speed-up, times one rank", xticks=ticks)
    right.set(xlabel="ranks", ylabel="efficiency, share of perfect", xticks=ticks)
    left.set_ylim(0)
    right.set_ylim(0, 1.15)
    for axes in (left, right):
        axes.grid(axis="y")
    figure.legend(loc="outside upper left", ncols=max(1, len(tables)))
    return figure


def alt_text_of_scaling(tables: Mapping[str, pd.DataFrame]) -> str:
    """The points of both panels in words."""
    lines = []
    for name, table in tables.items():
        points = [
            f"{row['ranks']:.0f} ranks {row['speed-up']:.2f} times and {row['efficiency']:.0%}"
            for _, row in table.iterrows()
        ]
        lines.append(f"{name}: " + ", ".join(points))
    return "Speed-up and efficiency over the number of ranks. " + "; ".join(lines) + "."
