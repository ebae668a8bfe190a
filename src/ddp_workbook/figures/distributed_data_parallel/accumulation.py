"""One step with several micro-batches: when they compute, and when gradients travel."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style


@style()
def accumulation_plot(events: pd.DataFrame) -> Figure:
    """A lane for each way: micro-batches as numbered bars, below them the all-reduces.

    `events` has the columns way, micro_batch (0 for an all-reduce), start and end in milliseconds.
    """
    ways = list(events["way"].unique())
    figure = Figure((WIDTH, 1.3 + 0.75 * len(ways)), layout="constrained")
    axes, sent = figure.subplots(), series_colour(3)
    for _, one in events.iterrows():
        row, length = ways.index(one["way"]), one["end"] - one["start"]
        if one["micro_batch"]:
            look = {"facecolor": tint(INK, 0.2), "edgecolor": INK, "linewidth": 0.8}
            axes.barh(row - 0.16, length, left=one["start"], height=0.36, **look)
            middle = one["start"] + length / 2
            axes.text(middle, row - 0.16, one["micro_batch"], ha="center", va="center", size=9)
        else:
            axes.barh(row + 0.2, length, left=one["start"], height=0.26, color=sent)
    label_rows(axes, ways)
    axes.set(xlabel="milliseconds since the step began", xlim=(0, None))
    keys = [
        Patch(
            label="forward and backward of a micro-batch", facecolor=tint(INK, 0.2), edgecolor=INK
        ),
        Patch(label="all-reduce of a bucket", color=sent),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=2)
    return figure


def alt_text_of_accumulation(events: pd.DataFrame) -> str:
    """How many micro-batches and all-reduces each way has, and how long the step took."""
    words = []
    for way, some in events.groupby("way", sort=False):
        count, sent = some["micro_batch"].max(), (some["micro_batch"] == 0).sum()
        words.append(
            f"{way}: {count} micro-batches, {sent} all-reduces, {some['end'].max():.0f} ms"
        )
    return f"One step with several micro-batches. {'; '.join(words)}."
