"""Page 00's picture: one program, several processes, one sum."""

from collections.abc import Sequence
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.style import FAINT, INK, WIDTH, style

PROGRAM = "x = rank + 1\nall_reduce(x)\nx"
LANE, TOP, BOX = 0.52, 0.5, 0.4  # inches
CARD, RANKS, SUM, AFTER = (0.1, 1.55), (2.35, 2.3), (5.35, 1.35), (7.35, 0.95)  # left, width


class Held(Protocol):
    """What the picture shows of a rank."""

    process: int
    before: float
    after: float


@style()
def one_sum_plot(of_ranks: Sequence[Held]) -> Figure:
    """From left to right: the program, each rank with its value, the sum, the values afterwards."""
    height = TOP + len(of_ranks) * LANE + 0.1
    figure = Figure((WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.set_axis_off()
    headings = ("one program", "one process for each rank", "one sum", "afterwards")
    for (left, width), heading in zip((CARD, RANKS, SUM, AFTER), headings, strict=True):
        axes.text(left + width / 2, 0.25, heading, ha="center", va="center", weight="bold")
    middle = TOP + len(of_ranks) * LANE / 2 - (LANE - BOX) / 2
    tall = len(of_ranks) * LANE - (LANE - BOX)
    _box(axes, CARD, middle - 0.5, 1.0, PROGRAM, FAINT, INK, family="DejaVu Sans Mono")
    terms = " + ".join(f"{held.before:g}" for held in of_ranks)
    _box(axes, SUM, TOP, tall, f"all_reduce\n\n{terms}", FAINT, INK)
    for rank, held in enumerate(of_ranks):
        top, colour = TOP + rank * LANE, rank_colour(rank)
        y = top + BOX / 2
        words = f"rank {rank}, process {held.process}: x = {held.before:g}"
        _box(axes, RANKS, top, BOX, words, tint(colour, 0.12), colour)
        _box(axes, AFTER, top, BOX, f"x = {held.after:g}", tint(colour, 0.12), colour)
        _arrow(axes, (sum(CARD), middle), (RANKS[0], y), INK)
        _arrow(axes, (sum(RANKS), y), (SUM[0], y), colour)
        _arrow(axes, (sum(SUM), y), (AFTER[0], y), colour)
    return figure


def alt_text_of_one_sum(of_ranks: Sequence[Held]) -> str:
    """The picture in words, with the same numbers."""
    before = ", ".join(f"{held.before:g}" for held in of_ranks)
    after = ", ".join(f"{held.after:g}" for held in of_ranks)
    processes = ", ".join(str(held.process) for held in of_ranks)
    return (
        f"One program runs in {len(of_ranks)} processes, numbered {processes}. Ranks 0 to "
        f"{len(of_ranks) - 1} begin with {before}. all_reduce adds these up. Afterwards the ranks "
        f"have {after}."
    )


def _box(
    axes: Axes,
    across: tuple[float, float],
    top: float,
    height: float,
    words: str,
    fill: str,
    edge: str,
    **text,
) -> None:
    left, width = across
    rounded = "round,pad=0,rounding_size=0.08"
    shape = FancyBboxPatch(
        (left, top), width, height, boxstyle=rounded, facecolor=fill, edgecolor=edge
    )
    axes.add_patch(shape)
    look = {"ha": "center", "va": "center", "size": 9, "color": INK} | text
    axes.text(left + width / 2, top + height / 2, words, **look)


def _arrow(axes: Axes, start: tuple, end: tuple, colour: str) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.3}
    )
