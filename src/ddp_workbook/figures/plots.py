"""What the chapters draw from values that ranks really had: rows over devices, digits, losses."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ddp_workbook.figures.palette import rank_colour, rank_marker, series_colour, tint
from ddp_workbook.figures.style import PictureError, style

WIDTH = 8.4  # inches; 806 CSS pixels, which JupyterLab's page has room for


@style()
def loss_plot(frame: pd.DataFrame) -> Figure:
    """Loss against step, one line for each rank or candidate.

    `frame` has the columns step, loss, and rank or candidate; ranks keep their colours and
    markers. Raises PictureError where a column is missing.
    """
    who = next((column for column in ("rank", "candidate") if column in frame), None)
    if who is None or not {"step", "loss"} <= set(frame.columns):
        raise PictureError("loss_plot needs the columns step, loss and rank (or candidate).")
    figure = Figure((WIDTH, 3.4), layout="constrained")
    axes = figure.subplots()
    for index, (name, line) in enumerate(frame.groupby(who, sort=False)):
        ranks = who == "rank"
        axes.plot(
            line["step"],
            line["loss"],
            label=f"rank {name}" if ranks else name,
            color=rank_colour(name) if ranks else series_colour(index),
            marker=rank_marker(name if ranks else index),
            markevery=(index, max(1, len(line) // 10)),
        )  # apart where two lines are equal
    axes.set(xlabel="step", ylabel="loss")
    axes.grid(axis="y")
    axes.legend()
    return figure


@style()
def grid(rows: Mapping[str, Sequence] | Sequence[Sequence], title: str = "") -> Figure:
    """Values as a row of boxes for each rank, in the rank's colour, aligned from the left.

    `rows` holds the values of ranks 0, 1, ...; a mapping gives the rows other names. A value may
    be anything with a short text.
    """
    named = rows if isinstance(rows, Mapping) else {f"rank {i}": row for i, row in enumerate(rows)}
    if not named:
        raise PictureError("There are no rows to draw.")
    across = max(1, *map(len, named.values()), 1)
    box = 0.38 + 0.09 * max(len(str(value)) for row in [*named.values(), [""]] for value in row)
    shrink = min(1.0, (WIDTH - 1.2) / (across * box))  # inches that there are, by those wanted
    figure = Figure(
        (1.2 + across * box * shrink, 0.3 * bool(title) + 0.2 + 0.48 * len(named)),
        layout="constrained",
    )
    axes = figure.subplots()
    for rank, row in enumerate(named.values()):
        for column, value in enumerate(row):
            axes.add_patch(
                Rectangle(
                    (column, rank - 0.4),
                    0.92,
                    0.8,
                    edgecolor=rank_colour(rank),
                    facecolor=tint(rank_colour(rank)),
                    linewidth=1.8,
                )
            )
            axes.text(
                column + 0.46, rank, str(value), ha="center", va="center", fontsize=11 * shrink
            )
    label_rows(axes, list(named))
    axes.set(xlim=(-0.1, across), xticks=[], title=title)
    axes.spines[:].set_visible(False)
    return figure


@style()
def digits_plot(
    images: Sequence, labels: Sequence, ranks: Sequence[int] | None = None, names: str = "rank"
) -> Figure:
    """Images of 8 x 8 pixels in one line with their labels; `ranks` frames each in a rank's colour.

    `images` is [n, 64] or [n, 8, 8], any numbers; `names` says what a rank is called (device).
    """
    pixels = np.asarray(images, dtype=float).reshape(-1, 8, 8)
    if len(pixels) == 0 or len(pixels) != len(labels):
        raise PictureError(f"There are {len(pixels)} images and {len(labels)} labels.")
    across = min(len(pixels), 10)
    down = math.ceil(len(pixels) / across)
    figure = Figure((WIDTH * across / 10, 1.3 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flat
    for index, axes in enumerate(panels):
        if index >= len(pixels):
            axes.remove()
            continue
        axes.imshow(pixels[index], cmap="gray_r")
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{int(labels[index])}", loc="center")
        axes.spines[:].set_visible(True)
        if ranks is not None:
            axes.set_xlabel(f"{names} {ranks[index]}", fontsize=10)
            axes.spines[:].set(color=rank_colour(ranks[index]), linewidth=4)
    return figure


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a horizontal chart, the first one on top."""
    axes.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _wrapped(name: str) -> str:
    return "\n".join(textwrap.fill(line, 24) for line in str(name).splitlines())
