"""Copies to a GPU from ordinary and from pinned memory: a drawing."""

from __future__ import annotations

from manyranks import figures
from manyranks.figures.palette import series_colour, tint

PINNING_ALT = (
    "Two ways to copy a batch from the machine's memory to a GPU. "
    "Ordinary memory takes two copies: the CPU copies the batch into a small buffer of pinned "
    "memory, and the GPU fetches it from there; Python waits until the first copy is done. "
    "From pinned memory the GPU fetches the batch in one copy; with non_blocking=True Python does "
    "not wait."
)
MIDDLES = {"memory": 2.35, "buffer": 6.05, "GPU": 9.7}  # of the three columns
BLOCK = (1.9, 0.78)


@figures.house_style
def pinning_plot() -> figures.Picture:
    """A line for ordinary memory, with its detour through a buffer, and one for pinned memory."""
    axes = figures.sheet(figures.WIDTH, 3.5)
    axes.set(xlim=(-0.1, 10.85), ylim=(4.6, 0))
    for left, right, title in (
        (1.15, 7.25, "memory of the machine"),
        (8.55, 10.75, "memory of the GPU"),
    ):
        look = {"facecolor": "#f6f6f6", "edgecolor": series_colour(1), "linewidth": 1}
        figures.box(axes, (left, 0.52), (right - left, 3.95), frame=look)
        axes.text(left, 0.4, title, weight="bold", va="bottom")
    for height, name in ((1.65, "ordinary\nmemory"), (3.55, "pinned\nmemory")):
        pinned = name.startswith("pinned")
        axes.text(0, height, name, va="center", weight="bold")
        _block(axes, "memory", height, "batch", pinned)
        _block(axes, "GPU", height, "batch", pinned=False)
        if pinned:
            _copy(axes, "memory", "GPU", height, "the GPU fetches it;\nPython need not wait", 5.0)
        else:
            _block(axes, "buffer", height, "pinned buffer\nof the driver", pinned=True)
            _copy(axes, "memory", "buffer", height, "1. the CPU\ncopies")
            _copy(axes, "buffer", "GPU", height, "2. the GPU\nfetches it")
    return figures.Picture(axes.figure, PINNING_ALT)


def _block(axes: figures.Axes, place: str, height: float, words: str, pinned: bool) -> None:
    """A block of memory; pinned memory is darker and has a heavy frame."""
    colour = series_colour(2 if pinned else 1)
    frame = {"facecolor": tint(colour, 0.35), "edgecolor": colour}
    corner = MIDDLES[place] - BLOCK[0] / 2, height - BLOCK[1] / 2
    figures.box(axes, corner, BLOCK, words, frame=frame | {"linewidth": 3 if pinned else 1.5})


def _copy(
    axes: figures.Axes, start: str, end: str, height: float, words: str, middle: float | None = None
) -> None:
    left, right = MIDDLES[start] + BLOCK[0] / 2, MIDDLES[end] - BLOCK[0] / 2
    figures.arrow(
        axes, (left + 0.04, height), (right - 0.04, height), arrowstyle="-|>", linewidth=1.6
    )
    place = middle or (left + right) / 2, height - 0.12
    axes.text(*place, words, ha="center", va="bottom", size=9.5)
