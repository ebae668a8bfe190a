"""One step of DataParallel on a few digits, operation by operation, with the values that it had."""

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

LEFT, DIGIT, GAP = 1.62, 0.58, 0.22  # inches
TOPS = {"scatter": 0.42, "replicate": 1.5, "parallel_apply": 2.32, "gather": 3.2}
WHAT = {
    "scatter": "cut the batch",
    "replicate": "copy the model",
    "parallel_apply": "compute in threads:\nshare of the loss",
    "gather": "add on device 0",
}
HEIGHT, BOX = 3.95, 0.56


class Step(Protocol):
    """What the picture needs to know of a step."""

    images: Sequence
    labels: Sequence
    sizes: Sequence[int]
    shares: Sequence[float]
    loss: float
    loss_alone: float


@style()
def operations_plot(step: Step) -> Figure:
    """The batch on top, a column for each device below it, and the sum on device 0 at the end."""
    figure = Figure((WIDTH, HEIGHT))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.set_axis_off()
    axes.text(LEFT, 0.2, f"one batch of {len(step.labels)} digits", va="center")
    for name, top in TOPS.items():
        axes.text(0.1, top + 0.14, name, weight="bold", va="center")
        axes.text(0.1, top + 0.31, WHAT[name], va="top", size=9)
    for device, (left, width) in enumerate(_columns(step.sizes)):
        _digits(axes, step, device, left)
        model = "the model" if device == 0 else "a copy"
        words = f"device {device}\n{model}"
        _box(axes, left, TOPS["replicate"], width, words, device)
        _box(axes, left, TOPS["parallel_apply"], width, f"{step.shares[device]:.3f}", device)
        middle = left + width / 2
        tip, start = (middle, TOPS["gather"]), (middle, TOPS["parallel_apply"] + BOX)
        arrow = {"arrowstyle": "->", "color": rank_colour(device), "linewidth": 1.4}
        axes.annotate("", tip, start, arrowprops=arrow)
    first, last = _columns(step.sizes)[0], _columns(step.sizes)[-1]
    words = f"loss {step.loss:.3f}, the sum of the shares (in one process: {step.loss_alone:.3f})\n"
    words += "gradient: the sum of all devices' gradients"
    _box(axes, first[0], TOPS["gather"], last[0] + last[1] - first[0], words, 0)
    return figure


def alt_text_of_operations(step: Step) -> str:
    """The picture in words, with the same numbers."""
    sizes = ", ".join(map(str, step.sizes))
    shares = ", ".join(f"{share:.3f}" for share in step.shares)
    return (
        f"One step of DataParallel. A batch of {len(step.labels)} digits is cut into pieces of "
        f"{sizes} rows for {len(step.sizes)} devices. Device 0 has the model, the others have "
        f"copies. Their shares of the loss are {shares}. On device 0 they add up to "
        f"{step.loss:.3f}; one process has {step.loss_alone:.3f}."
    )


def _columns(sizes: Sequence[int]) -> list[tuple[float, float]]:
    """Left edge and width of each device's column, in inches."""
    widths = [size * DIGIT for size in sizes]
    lefts = itertools.accumulate([LEFT, *(width + GAP for width in widths[:-1])])
    return list(zip(lefts, widths, strict=True))


def _digits(axes: Axes, step: Step, device: int, left: float) -> None:
    """The device's rows of the batch, framed in its colour."""
    first, top = sum(step.sizes[:device]), TOPS["scatter"]
    for place in range(step.sizes[device]):
        x = left + place * DIGIT
        pixels = np.asarray(step.images[first + place], dtype=float).reshape(8, 8)
        edges = (x + 0.04, x + DIGIT - 0.04, top + DIGIT - 0.08, top)
        axes.imshow(pixels, cmap="gray_r", extent=edges, aspect="auto", zorder=2)
    frame = {"facecolor": "none", "edgecolor": rank_colour(device), "linewidth": 3}
    axes.add_patch(Rectangle((left, top - 0.05), step.sizes[device] * DIGIT, DIGIT + 0.02, **frame))
    rows = f"{step.sizes[device]} row{'s' * (step.sizes[device] > 1)}"
    axes.text(left, top + DIGIT + 0.13, rows, size=9, va="center")


def _box(axes: Axes, left: float, top: float, width: float, words: str, device: int) -> None:
    colour = rank_colour(device)
    shape = FancyBboxPatch(
        (left, top),
        width,
        BOX,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=tint(colour, 0.12),
        edgecolor=colour,
    )
    axes.add_patch(shape)
    axes.text(left + width / 2, top + BOX / 2, words, ha="center", va="center", size=9, color=INK)
