"""Pictures of chapter 07, further: a step as a timeline, and scaling to 1,024 GPUs by the model."""

from collections.abc import Iterable, Sequence
from math import log2
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from ddp_workbook.figures.palette import rank_marker, series_colour, tint
from ddp_workbook.figures.style import FAINT, INK, WIDTH, label_rows, style

IDEAL = {"color": INK, "linestyle": "dotted", "linewidth": 1.2}
DASHES = ("solid", "dashed", "dashdot")


@style()
def weak_plot(scaling: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Efficiency against ranks, a line a network (by the model), and what others have published.

    `scaling` has the columns ranks, network and efficiency; `published` has what, source, from, to
    (ranks) and efficiency, which is against the smaller size.
    """
    figure = Figure((WIDTH, 3.9), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1, **IDEAL)
    for number, (network, line) in enumerate(scaling.groupby("network", sort=False)):
        look = {"color": series_colour(2 * number), "linestyle": DASHES[number]}
        axes.plot(line["ranks"], line["efficiency"], **look, label=f"model: {network}")
    for number, one in enumerate(published.itertuples(index=False)):
        ends, heights = [one[2], one[3]], [1, one.efficiency]
        look = {"marker": rank_marker(number + 2), "color": series_colour(1), "markersize": 8}
        label = f"measured: {one.what} ({one.source})"
        axes.plot(ends, heights, linestyle="none", label=label, **look)
        axes.plot(ends, heights, color=FAINT, linewidth=1, zorder=0)
    by_ranks(axes, scaling["ranks"])
    axes.set(ylim=(0, 1.08), ylabel="efficiency")
    axes.set_xlabel("GPUs; each computes as much as one GPU alone")
    figure.legend(loc="outside upper left", ncols=1, fontsize=9.5)
    return figure


def alt_text_of_weak(scaling: pd.DataFrame, published: pd.DataFrame) -> str:
    """Each line at its ends, and each published point."""
    lines = [
        f"{network}: {line['efficiency'].iloc[-1]:.0%}"
        for network, line in scaling.groupby("network", sort=False)
    ]
    points = [
        f"{one.what}, measured from {one[2]} to {one[3]} GPUs: {one.efficiency:.1%}"
        for one in published.itertuples(index=False)
    ]
    most = scaling["ranks"].max()
    return (
        f"Efficiency of weak scaling. By the model, at {most:,} GPUs: {'; '.join(lines)}. "
        f"{'; '.join(points)}."
    )


@style()
def strong_plot(scaling: dict[str, pd.DataFrame], turning: dict[str, float]) -> Figure:
    """Seconds of a step against ranks, a line a table, marked where a step is shortest.

    The tables have the columns ranks and seconds; `turning` holds a number of ranks for each.
    """
    figure = Figure((WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    first = next(iter(scaling.values()))
    axes.plot(first["ranks"], first["seconds"].iloc[0] / first["ranks"], **IDEAL, label="ideal")
    for number, (name, line) in enumerate(scaling.items()):
        look = {"color": series_colour(2 * number), "linestyle": DASHES[number]}
        axes.plot(line["ranks"], line["seconds"], label=name, **look)
        mark_lowest(axes, line, turning[name], look["color"], above=number == 0)
    by_ranks(axes, [2**power for power in range(int(log2(first["ranks"].max())) + 1)])
    shortest = min(line["seconds"].min() for line in scaling.values())
    axes.set(yscale="log", ylim=(shortest / 3, None), ylabel="seconds a step")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("GPUs; all of them share one batch")
    figure.legend(loc="outside upper left", ncols=3)
    return figure


def mark_lowest(
    axes: Axes, line: pd.DataFrame, ranks: float, colour: str, above: bool = False
) -> None:
    """A dot on the line at this number of ranks, with its seconds and ranks above or below it."""
    seconds = line["seconds"].iloc[(line["ranks"] - ranks).abs().argmin()]
    axes.plot(ranks, seconds, marker="o", color=colour)
    look = {"xytext": (0, 9 if above else -9), "va": "bottom" if above else "top", "ha": "center"}
    words = f"{seconds:.2f} s on {ranks:.0f}"
    axes.annotate(words, (ranks, seconds), textcoords="offset points", color=colour, **look)


def alt_text_of_strong(scaling: dict[str, pd.DataFrame], turning: dict[str, float]) -> str:
    """Where each line begins, is lowest by the formula, and ends."""
    lines = [
        f"{name}: {line['seconds'].iloc[0]:.1f} s on one GPU, {line['seconds'].min():.2f} s at the "
        f"shortest, on about {turning[name]:.0f}, "
        f"{line['seconds'].iloc[-1]:.1f} s on {line['ranks'].iloc[-1]:,}"
        for name, line in scaling.items()
    ]
    return f"Seconds of a step if all GPUs share one batch, by the model. {'; '.join(lines)}."


@style()
def timeline_plot(rows: dict[str, tuple[Any, Sequence]]) -> Figure:
    """Steps one below the other: the compute as a bar, each all-reduce as a bar under it.

    A thin line marks where compute ends: what is right of it makes the step longer.

    `rows` holds for each name a step (`planning.scaling.Step`) and its buckets (ready, start, end).
    Milliseconds since forward began.
    """
    figure = Figure((WIDTH, 1.2 + 0.9 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = []
    for place, (name, (step, sent)) in enumerate(rows.items()):
        names += [name, "all-reduce"]
        forward = step.compute / 3
        for left, width, shade in ((0, forward, 0.45), (forward, step.compute - forward, 1.0)):
            colour = tint(series_colour(0), shade)
            axes.barh(2 * place, width * 1e3, left=left * 1e3, height=0.6, color=colour)
        for one in sent:
            look = {"color": series_colour(2), "edgecolor": "white", "linewidth": 1.2}
            width = (one.end - one.start) * 1e3
            axes.barh(2 * place + 1, width, left=one.start * 1e3, height=0.6, **look)
        end = step.compute * 1e3
        axes.plot([end, end], [2 * place - 0.45, 2 * place + 1.45], color=INK, linewidth=1)
    label_rows(axes, names)
    axes.set_xlabel("milliseconds since forward began")
    axes.grid(axis="x")
    compute = series_colour(0)
    key = {"forward": tint(compute, 0.45), "backward": compute, "all-reduce": series_colour(2)}
    patches = [Patch(color=colour, label=name) for name, colour in key.items()]
    patches.append(Line2D([], [], color=INK, linewidth=1, label="compute ends"))
    figure.legend(handles=patches, loc="outside upper left", ncols=4)
    return figure


def alt_text_of_timeline(rows: dict[str, tuple[Any, Sequence]]) -> str:
    """The length of the compute and of each step."""
    lines = [
        f"{name}: compute ends after {step.compute * 1e3:.0f} ms, the last of {len(sent)} "
        f"all-reduces after {sent[-1].end * 1e3:.0f} ms"
        for name, (step, sent) in rows.items()
    ]
    return f"A step by the model, in time. {'; '.join(lines)}."


def by_ranks(axes: Axes, ranks: Iterable[int]) -> None:
    """A logarithmic axis with the numbers of ranks that were asked for."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(ranks)), [f"{n:,}" for n in sorted(set(ranks))])
    axes.minorticks_off()
    axes.grid(axis="y")
