"""The first picture of chapter 02: what every rank has in a step, and the one thing it sends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ddp_workbook.figures.palette import rank_colour, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

GAP, LEFT = 0.05, 0.18  # between the ranks' columns, and for the words at the left; of the width
ROWS, REPLICA, OWN, REDUCE, MEAN = 0.81, 0.565, 0.375, 0.215, 0.03  # lower edges, of the height


@style()
def replicas_plot(steps: Sequence[Any]) -> Figure:
    """A column for each rank: its rows, its replica, its buckets; between them the all-reduce.

    `steps` has a Step of `experiments.distributed_data_parallel.one_step` for each rank.
    """
    figure = Figure((WIDTH, 4.9))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    wide = (1 - 0.02 - LEFT - GAP * (len(steps) - 1)) / len(steps)
    _words_at_the_left(axes)
    _all_reduce(axes, [LEFT + (r + 0.5) * wide + r * GAP for r in range(len(steps))])
    for rank, step in enumerate(steps):
        start = LEFT + rank * (wide + GAP)
        _process(axes, start, wide, rank)
        _digits(figure, start, wide, rank, step)
        _replica(axes, start, wide, step)
        for row, kind in ((OWN, "own"), (MEAN, "mean")):
            _buckets(axes, start, wide, row, rank, step, kind)
    return figure


def alt_text_of_replicas(steps: Sequence[Any]) -> str:
    """The picture in words: whose rows, which buckets, and what the all-reduce makes of them."""
    words = []
    for rank, step in enumerate(steps):
        rows = ", ".join(map(str, step.rows))
        own = ", ".join(f"{bucket.own:.4f}" for bucket in step.buckets)
        words.append(f"Rank {rank} has rows {rows} and own gradients that begin with {own}.")
    mean = ", ".join(f"{bucket.mean:.4f}" for bucket in steps[0].buckets)
    layers = "; ".join(" and ".join(bucket.layers) for bucket in steps[0].buckets)
    return (
        f"{len(steps)} processes side by side, each with rows of the batch, a whole model and "
        f"{len(steps[0].buckets)} buckets of gradients ({layers}). {' '.join(words)} An all-reduce "
        f"between the processes makes the mean of each bucket, {mean}, which all ranks then have."
    )


def _words_at_the_left(axes: Axes) -> None:
    for row, words in (
        (ROWS + 0.075, "its rows\nof the batch"),
        (REPLICA + 0.08, "its replica\nof the model"),
        (OWN + 0.055, "own gradients,\nin buckets"),
        (MEAN + 0.055, "mean gradients,\nin buckets"),
    ):
        axes.text(0.01, row, words, va="center", size=10)


def _process(axes: Axes, start: float, wide: float, rank: int) -> None:
    frame = {"facecolor": "none", "edgecolor": rank_colour(rank), "linewidth": 2}
    axes.add_patch(Rectangle((start - 0.015, 0.008), wide + 0.03, 0.984, **frame))
    axes.text(
        start, 0.967, f"rank {rank}: a process", va="center", color=rank_colour(rank), weight="bold"
    )


def _digits(figure: Figure, start: float, wide: float, rank: int, step: Any) -> None:
    each = wide / len(step.rows)
    for place, (row, image) in enumerate(zip(step.rows, step.images, strict=True)):
        inset = figure.add_axes((start + place * each, ROWS + 0.035, each * 0.92, 0.1))
        inset.imshow(np.reshape(image, (8, 8)), cmap="gray_r")
        inset.set(xticks=[], yticks=[])
        inset.spines[:].set(visible=True, color=rank_colour(rank), linewidth=2)
        inset.set_xlabel(f"row {row}", size=9, labelpad=2)


def _replica(axes: Axes, start: float, wide: float, step: Any) -> None:
    layers = [layer for bucket in step.buckets for layer in bucket.layers][::-1]
    each = 0.155 / len(layers)
    for place, layer in enumerate(layers):
        box = (start, REPLICA + 0.155 - (place + 1) * each)
        look = {"facecolor": tint(INK, 0.12), "edgecolor": "white", "linewidth": 1.5}
        axes.add_patch(Rectangle(box, wide, each, **look))
        middle = (start + wide / 2, box[1] + each / 2)
        axes.text(*middle, layer, ha="center", va="center", size=9)
    axes.text(start + wide / 2, REPLICA + 0.178, "the same weights", ha="center", size=9)
    arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1.2}
    axes.annotate(
        "", (start + 0.01, OWN + 0.125), (start + 0.01, REPLICA - 0.005), arrowprops=arrow
    )
    axes.text(start + 0.025, REPLICA - 0.035, "backward, from the output on", va="center", size=9)


def _buckets(
    axes: Axes, start: float, wide: float, row: float, rank: int, step: Any, kind: str
) -> None:
    each = wide / len(step.buckets)
    for place, bucket in enumerate(step.buckets):
        colour = rank_colour(rank) if kind == "own" else series_colour(3)
        look = {"facecolor": tint(colour), "edgecolor": colour, "linewidth": 1.2}
        left = start + place * each
        axes.add_patch(Rectangle((left, row), each * 0.94, 0.115, **look))
        words = " and\n".join(bucket.layers)
        axes.text(left + each * 0.47, row + 0.075, words, ha="center", va="center", size=8)
        number = f"{getattr(bucket, kind):.4f} …"
        axes.text(left + each * 0.47, row + 0.022, number, ha="center", va="center", size=9)


def _all_reduce(axes: Axes, places: Sequence[float]) -> None:
    colour = series_colour(3)
    look = {"facecolor": colour, "edgecolor": "none"}
    axes.add_patch(Rectangle((0.005, REDUCE), 0.99, 0.08, zorder=3, **look))
    words = "all-reduce: the mean over the ranks, one bucket after the other"
    axes.text(
        0.5 + LEFT / 2, REDUCE + 0.04, words, ha="center", va="center", color="white", zorder=4
    )
    axes.text(0.015, REDUCE + 0.04, "on the wire", va="center", color="white", zorder=4, size=10)
    arrow = {"arrowstyle": "->", "color": INK, "linewidth": 1.2}
    for top, bottom in ((OWN - 0.005, REDUCE + 0.085), (REDUCE - 0.005, MEAN + 0.12)):
        for place in places:
            axes.annotate("", (place, bottom), (place, top), arrowprops=arrow)
