"""What the ranks hold before and after a collective, drawn from their tensors, all in one style.

A box is a number. Its fill is the colour of the rank that the number comes from; the stripes below
it name the ranks whose numbers are in it, by colour and by place. Both are found by comparing what
the ranks hold with what they held: a number that no rank held, and that is no sum, stays grey.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ddp_workbook.figures.holdings import Row, before_and_after, origins, words
from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.plots import WIDTH, label_rows
from ddp_workbook.figures.style import FAINT, INK, PictureError, style

BOX, HEIGHT, PITCH, GAP = 0.74, 0.36, 0.48, 0.1  # inches: a box, from row to row, between tensors
HEAD = 0.27  # inches of a line of text above the boxes
LABEL, LEFT, MIDDLE, RIGHT = (
    0.1,
    0.95,
    4.62,
    5.0,
)  # where names, both sides, the arrow are
ROOM = 3.3  # inches for the boxes of one side
SMALLEST = 6  # points of a number that can still be read


def collective_plot(moved: Sequence, title: str = "") -> Figure:
    """The ranks' boxes before and after, a row a rank; `moved` is what `launch` returned.

    For each rank that is a pair (before, after) of tensors, lists of tensors, numbers or None.
    Raises PictureError for anything else, and for more ranks or numbers than a picture can show.
    """
    return collectives_plot({title: moved})


@style()
def collectives_plot(named: Mapping[str, Sequence]) -> Figure:
    """Several collectives, one below the other, in the same style."""
    sides = {name: before_and_after(moved) for name, moved in named.items()}
    if not sides:
        raise PictureError("There is nothing to draw.")
    heights = [
        HEAD * (1 + bool(name)) + PITCH * len(before) + 0.08 for name, (before, _) in sides.items()
    ]
    axes, top = sheet(WIDTH, sum(heights)), 0.0
    for (name, (before, after)), height in zip(sides.items(), heights, strict=True):
        _both_sides(axes, top, name, before, after)
        top += height
    return axes.figure


@style()
def waiting_plot(times: Sequence[tuple[float, float]]) -> Figure:
    """A bar a rank: how long it worked, in its colour, and how long it then waited, hatched.

    `times` holds for each rank the seconds at which it came to the meeting and left it, counted
    from a start that all ranks share.
    """
    if not times or not all(0 <= came <= left for came, left in times):
        raise PictureError("Pass a pair (came, left) of seconds for each rank, came before left.")
    figure = Figure((WIDTH, 0.9 + 0.42 * len(times)), layout="constrained")
    axes = figure.subplots()
    for rank, (came, left) in enumerate(times):
        colour = rank_colour(rank)
        axes.barh(rank, came * 1e3, height=0.66, color=colour)
        look = {"facecolor": tint(colour), "hatch": "///", "edgecolor": colour, "linewidth": 0}
        axes.barh(rank, (left - came) * 1e3, left=came * 1e3, height=0.66, **look)
    label_rows(axes, [f"rank {rank}" for rank in range(len(times))])
    axes.set_xlabel("milliseconds: full bars work, hatched bars wait")
    axes.grid(axis="x")
    return figure


def sheet(width: float, height: float) -> Axes:
    """Axes that fill a figure and count in inches from its upper left corner."""
    axes = Figure((width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def name_rows(axes: Axes, ranks: int, top: float, pitch: float = PITCH, left: float = 0.0) -> None:
    """Write "rank 0", "rank 1", ... to the left of the rows."""
    for rank in range(ranks):
        axes.text(left + LABEL, top + rank * pitch + HEIGHT / 2, f"rank {rank}", va="center")


def draw_rows(
    axes: Axes,
    rows: Sequence[Row],
    before: Sequence[Row],
    corner: tuple[float, float],
    *,
    pitch: float = PITCH,
    room: float = ROOM,
) -> float:
    """Draw what each rank holds, coloured by who held it `before`; returns the width of a box."""
    known = origins(before)
    box = min([BOX, *(_share(row, room) for row in rows)])
    longest = max((len(words(n)) for row in rows for piece in row for n in piece), default=1)
    points = min(11.0, 86 * box / max(longest, 2))
    if points < SMALLEST:
        raise PictureError("These are more numbers than fit into a picture: draw smaller tensors.")
    for rank, row in enumerate(rows):
        top = corner[1] + rank * pitch
        if not row:
            _empty(axes, corner[0], top)
        same = list(itertools.chain(*before[rank]))
        for place, (left, number) in enumerate(_places(row, corner[0], box)):
            unchanged = same[place : place + 1] == [number]
            ranks = frozenset([rank]) if unchanged else known.get(number, frozenset())
            _box(axes, (left, top, box), ranks, len(rows))
            middle = left + box / 2 - 0.025, top + HEIGHT / 2 - 0.03
            axes.text(*middle, words(number), ha="center", va="center", size=points)
    return box


def _both_sides(
    axes: Axes, top: float, name: str, before: Sequence[Row], after: Sequence[Row]
) -> None:
    if name:
        axes.text(LABEL, top + HEAD / 2, name, va="center", weight="bold")
        top += HEAD
    axes.text(LEFT, top + HEAD / 2, "before", va="center", size=10)
    axes.text(RIGHT, top + HEAD / 2, "after", va="center", size=10)
    top += HEAD
    name_rows(axes, len(before), top)
    middle = top + (len(before) - 1) * PITCH / 2 + HEIGHT / 2
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.4}
    axes.annotate("", (MIDDLE + 0.16, middle), (MIDDLE - 0.16, middle), arrowprops=arrow)
    draw_rows(axes, before, before, (LEFT, top))
    draw_rows(axes, after, before, (RIGHT, top))


def _share(row: Row, room: float) -> float:
    """Inches that a box may take, so that the row fits."""
    return (room - GAP * max(0, len(row) - 1)) / max(1, sum(map(len, row)))


def _places(row: Row, left: float, box: float) -> Iterator[tuple[float, float]]:
    """(left edge, number) of each box, with a gap between tensors."""
    for piece in row:
        for number in piece:
            yield left, number
            left += box
        left += GAP


def _empty(axes: Axes, left: float, top: float) -> None:
    look = {"fill": False, "edgecolor": "#8f8f8f", "linestyle": (0, (3, 3)), "linewidth": 1}
    axes.add_patch(Rectangle((left, top), 0.8, HEIGHT, **look))
    axes.text(left + 0.4, top + HEIGHT / 2, "nothing", ha="center", va="center", size=9)


def _box(axes: Axes, place: tuple[float, float, float], ranks: frozenset[int], slots: int) -> None:
    """A box at (left, top, width), and in its lower part a stripe for each of the ranks."""
    left, top, width = place[0], place[1], place[2] - 0.05
    one = rank_colour(next(iter(ranks))) if len(ranks) == 1 else None
    fill = tint(one) if one else "white" if ranks else FAINT
    look = {"edgecolor": one or INK, "facecolor": fill, "linewidth": 1.4}
    axes.add_patch(Rectangle((left, top), width, HEIGHT, **look))
    slot = (width - 0.06) / slots
    for rank in ranks:
        corner = left + 0.03 + rank * slot, top + HEIGHT - 0.09
        stripe = {"facecolor": rank_colour(rank), "linewidth": 0}
        axes.add_patch(Rectangle(corner, max(slot - 0.015, 0.01), 0.06, **stripe))
