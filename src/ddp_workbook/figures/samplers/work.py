"""Samples that are not alike: the work of each rank, and the classes that it gets."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_colour, rank_hatch
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style


@style()
def work_plot(table: pd.DataFrame) -> Figure:
    """A bar for each rank: its texts, one after the other, as long as they have words.

    `table` has a row a rank, with the column words: a list. The line marks the mean of the ranks,
    the grey part of each bar the time in which the rank waits for the longest one.
    """
    totals = table["words"].map(sum)
    figure = Figure((WIDTH, 1.3 + 0.45 * len(table)), layout="constrained")
    axes = figure.subplots()
    for row, (rank, words) in enumerate(zip(table["rank"], table["words"], strict=True)):
        left = 0
        for length in words:
            colour = rank_colour(rank)
            axes.barh(row, length, left=left, height=0.66, color=colour, ec="white", lw=1)
            left += length
        idle = totals.max() - left
        axes.barh(row, idle, left=left, height=0.66, color="#eeeeee", hatch="//", ec="#bbbbbb")
        axes.text(1.02, row, f"{left}", va="center", transform=axes.get_yaxis_transform())
    axes.axvline(totals.mean(), color=INK, lw=1.4, ls=(0, (4, 2)))
    axes.set_xlim(0, totals.max())
    axes.set_xlabel("words in one step; a piece is one text; hatched: the rank waits")
    label_rows(axes, [f"rank {rank}" for rank in table["rank"]])
    axes.set_title(f"dashed: {totals.mean():.0f} words, the mean of the ranks")
    return figure


def alt_text_of_work(table: pd.DataFrame) -> str:
    """What `work_plot` shows, in words."""
    totals = table["words"].map(sum)
    ranks = ", ".join(f"rank {r}: {t}" for r, t in zip(table["rank"], totals, strict=True))
    return f"Words that each rank has in one step: {ranks}. The mean is {totals.mean():.0f}."


@style()
def classes_plot(table: pd.DataFrame, rare: int) -> Figure:
    """A panel for each sampler, a bar for each class, stacked by rank; class `rare` is marked."""
    samplers = list(table["sampler"].unique())
    figure = Figure((WIDTH, 3.3), layout="constrained")
    panels = figure.subplots(1, len(samplers), sharey=True, squeeze=False)[0]
    for axes, sampler in zip(panels, samplers, strict=True):
        counts = table[table["sampler"] == sampler].pivot(
            index="class", columns="rank", values="samples"
        )
        bottom = 0 * counts.iloc[:, 0]
        for rank in counts:
            look = {"color": rank_colour(rank), "hatch": rank_hatch(rank), "ec": "white", "lw": 0}
            axes.bar(counts.index, counts[rank], bottom=bottom, label=f"rank {rank}", **look)
            bottom = bottom + counts[rank]
        axes.annotate(
            f"{bottom[rare]}", (rare, bottom[rare]), ha="center", va="bottom", weight="bold"
        )
        axes.set(title=sampler, xlabel="digit", xticks=counts.index)
    panels[0].set_ylabel("samples in an epoch")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=8)
    return figure


def alt_text_of_classes(table: pd.DataFrame, rare: int) -> str:
    """What `classes_plot` shows, in words."""
    parts = []
    for sampler, rows in table.groupby("sampler", sort=False):
        totals = rows.groupby("class")["samples"].sum()
        others = totals.drop(rare)
        parts.append(
            f"{sampler}: {totals[rare]} samples of the digit {rare}, {others.min()} to "
            f"{others.max()} of each other digit"
        )
    return "Samples of each digit in an epoch, all ranks together. " + ". ".join(parts) + "."
