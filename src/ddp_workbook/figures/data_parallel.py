"""Chapter 01's pictures: digits on their devices, the timeline of a step, what devices hold."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_colour, rank_hatch, series_colour
from ddp_workbook.figures.style import WIDTH, label_rows, style


@style()
def digits_plot(
    images: Sequence, labels: Sequence, ranks: Sequence[int] | None = None, names: str = "rank"
) -> Figure:
    """Images of 8 x 8 pixels with their labels; `ranks` frames each in the colour of its rank.

    `images` is [n, 64] or [n, 8, 8]; `names` is the word for a rank, such as device.
    """
    pixels = np.asarray(images, dtype=float).reshape(-1, 8, 8)
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


@style()
def images_plot(images: Mapping[str, Sequence]) -> Figure:
    """A few images of 8 x 8 pixels between 0 and 1, large and side by side, under their names."""
    figure = Figure((6.6, 2.4), layout="constrained")
    for axes, (name, image) in zip(figure.subplots(1, len(images)), images.items(), strict=True):
        axes.imshow(np.asarray(image, dtype=float).reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes.set_axis_off()
        axes.set_title(name, loc="center")
    return figure


@style()
def step_timeline_plot(events: pd.DataFrame) -> Figure:
    """One step of the stand-in: a lane for the main thread and for each replica's thread.

    `events` has a row for each call: thread, operation, and start and end in milliseconds.
    """
    lanes = ["main thread", "thread 0", "thread 1"]
    figure = Figure((WIDTH, 2.6), layout="constrained")
    axes = figure.subplots()
    for index, (operation, calls) in enumerate(events.groupby("operation", sort=False)):
        look = {"color": series_colour(index), "hatch": rank_hatch(index), "label": operation}
        rows = [lanes.index(thread) for thread in calls["thread"]]
        axes.barh(rows, calls["end"] - calls["start"], left=calls["start"], **look)
    label_rows(axes, lanes)
    axes.set(xlabel="milliseconds since the step began", title="stand-in: CPU threads")
    figure.legend(loc="outside upper right", ncols=4)
    return figure


@style()
def device_memory_plot(held: pd.DataFrame) -> Figure:
    """A stacked bar for each device (the index): the bytes it holds, by kind (the columns)."""
    figure = Figure((WIDTH, 2.2), layout="constrained")
    axes, left = figure.subplots(), np.zeros(len(held))
    for index, (kind, sizes) in enumerate(held.items()):
        look = {"color": series_colour(index), "hatch": rank_hatch(index), "label": kind}
        axes.barh(held.index, sizes / 1024, left=left, **look)
        left = left + sizes / 1024
    label_rows(axes, [f"device {device}" for device in held.index])
    axes.set(xlabel="KiB of tensors at the end of a step (stand-in: CPU threads)")
    figure.legend(loc="outside upper left", ncols=5)
    return figure
