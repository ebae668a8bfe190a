"""Boxes and arrows on a sheet, in inches from its upper left corner."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from manyranks.figures.palette import rank_colour, tint
from manyranks.figures.style import FAINT, INK

CORNER_RADIUS = 0.06  # inches: a corner's radius


def sheet(width: float, height: float) -> Axes:
    """Axes that fill a new figure (`axes.figure`): no ticks, no frame, y grows downwards."""
    axes = Figure((width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def box(
    axes: Axes,
    corner: tuple[float, float],
    size: tuple[float, float],
    words: object = "",
    rank: int | None = None,
    *,
    frame: dict[str, Any] | None = None,
    **text: Any,
) -> None:
    """A rounded box with words in its middle, in the colour of a rank if it belongs to one.

    `corner` is (left, top), `size` is (width, height). `frame` changes the box, other arguments its
    words: both are matplotlib's names.
    """
    (left, top), (width, height) = corner, size
    colour = INK if rank is None else rank_colour(rank)
    fill = FAINT if rank is None else tint(colour)
    radius = min(CORNER_RADIUS, width / 4, height / 4)
    shape = {"boxstyle": f"round,pad=0,rounding_size={radius}"}
    look = {"facecolor": fill, "edgecolor": colour, "linewidth": 1.4} | (frame or {})
    axes.add_patch(FancyBboxPatch((left, top), width, height, **shape, **look))
    place = {"ha": "center", "va": "center", "fontsize": 9, "color": INK} | text
    if words != "":
        axes.text(left + width / 2, top + height / 2, str(words), **place)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    rank: int | None = None,
    **look: Any,
) -> None:
    """An arrow from start to end, in the colour of a rank if it is that rank's message."""
    colour = INK if rank is None else rank_colour(rank)
    defaults = {"arrowstyle": "->", "color": colour, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=defaults | look)


def label_ranks(axes: Axes, ranks: int, top: float, pitch: float, left: float = 0.1) -> None:
    """Write "rank 0", "rank 1", … one below the other; `top` is the middle of the first."""
    for rank in range(ranks):
        axes.text(left, top + rank * pitch, f"rank {rank}", va="center")
