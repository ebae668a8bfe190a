"""Chapter 05: the time of a collective against its size."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ddp_workbook.figures.palette import rank_marker, series_colour
from ddp_workbook.figures.style import INK, WIDTH, style

KNEE = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "linestyle": "none"}
COLOURS = (4, 3)  # of the palette's series: apart from each other, and no rank's


@style()
def alpha_beta_plot(times: pd.DataFrame, lines: pd.DataFrame) -> Figure:
    """The fastest round at each size as markers, and the fitted line; a panel an op, both axes log.

    `times` has the columns op, ranks, bytes and seconds; `lines` has for each op and number of
    ranks latency (s), bandwidth (bytes/s) and knee (bytes). On logarithmic axes
    latency + size / bandwidth is flat, then steep; a ring marks the knee between them.
    """
    keys = ["op", "ranks", "bytes"]
    points = times.groupby(keys, sort=False, as_index=False)["seconds"].min()
    ops, counts = list(points["op"].unique()), list(points["ranks"].unique())
    figure = Figure((WIDTH, 3.7), layout="constrained")
    panels = figure.subplots(1, len(ops), sharey=True, squeeze=False)[0]
    sizes = np.geomspace(points["bytes"].min(), points["bytes"].max(), 60)
    for axes, op in zip(panels, ops, strict=True):
        for look, count in enumerate(counts):
            mine, line = _of(points, op, count), _of(lines, op, count).iloc[0]
            colour = series_colour(COLOURS[look % len(COLOURS)])
            marker = {"marker": rank_marker(look), "markersize": 6, "linestyle": "none"}
            axes.plot(mine["bytes"], mine["seconds"] * 1e3, **marker, color=colour)
            of_line = (line.latency + sizes / line.bandwidth) * 1e3
            axes.plot(sizes, of_line, color=colour)
            if sizes[0] <= line.knee <= sizes[-1]:
                axes.plot(line.knee, 2e3 * line.latency, **KNEE, markeredgecolor=colour)
        axes.set(xscale="log", yscale="log", title=op, xlabel="bytes")
        axes.set_xticks(*_ticks(sizes), minor=False)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel("milliseconds")
    looks = [
        Line2D([], [], color=series_colour(COLOURS[n % len(COLOURS)]), marker=rank_marker(n))
        for n in range(len(counts))
    ]
    looks.append(Line2D([], [], **KNEE, markeredgecolor=INK))
    names = [*(f"{count} ranks" for count in counts), "knee"]
    figure.legend(looks, names, loc="outside upper left", ncols=4)
    return figure


def alt_text_of_times(times: pd.DataFrame, lines: pd.DataFrame) -> str:
    """The times of the smallest and the largest size, and the knee, by op and number of ranks."""
    texts = []
    for line in lines.itertuples():
        mine = _of(times, line.op, line.ranks)
        fastest = mine.groupby("bytes")["seconds"].min().mul(1e3)
        texts.append(
            f"{line.op} on {line.ranks} ranks takes {fastest.iloc[0]:.3g} milliseconds for "
            f"{fastest.index[0]:,} bytes and {fastest.iloc[-1]:.3g} for {fastest.index[-1]:,}, "
            f"with the knee at {line.knee:,.0f} bytes"
        )
    return f"Milliseconds against bytes, on logarithmic axes. {'; '.join(texts)}."


def _ticks(sizes: np.ndarray) -> tuple[list[int], list[str]]:
    """Powers of two within the axis, and their names."""
    named = {2**10: "1 Ki", 2**15: "32 Ki", 2**20: "1 Mi", 2**25: "32 Mi"}
    inside = {size: name for size, name in named.items() if sizes[0] <= size <= sizes[-1]}
    return list(inside), list(inside.values())


def _of(table: pd.DataFrame, op: str, count: int) -> pd.DataFrame:
    return table[(table["op"] == op) & (table["ranks"] == count)]
