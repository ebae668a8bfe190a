"""A step of fully sharded training: which rank holds what of which block, moment by moment.

A block's weights, gradients and optimizer state are bars of one box per rank: the box of rank r is
r's own piece, in r's colour. A box is filled on a rank that holds that piece at the moment. A whole
gradient is striped in the colour of the rank that computed it: it has not been added up yet.
"""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style

KINDS = ("weights", "gradient", "optimizer state")
NONE, PIECE, WHOLE = "none", "piece", "whole"
BOX, BAR, PITCH, GAP, LEFT = 0.44, 0.2, 0.27, 0.5, 1.75  # inches
TOP, BOTTOM = 0.62, 0.12


class Moment(NamedTuple):
    """What one rank holds at a moment of the step: for each block "none", "piece" or "whole"."""

    doing: str
    block: int | None  # the one that something happens to, from 0
    weights: tuple[str, ...]
    gradients: tuple[str, ...]
    states: tuple[str, ...]

    def held(self, kind: str) -> tuple[str, ...]:
        """What it holds of one of KINDS, a word for each block."""
        return dict(zip(KINDS, (self.weights, self.gradients, self.states), strict=True))[kind]


@style()
def step_frame_plot(of_ranks: Sequence[Sequence[Moment]], number: int) -> Figure:
    """One moment: for each rank its blocks side by side, three bars each."""
    moments = [moments[number] for moments in of_ranks]
    ranks, blocks = len(moments), len(moments[0].weights)
    each = ranks * BOX
    width = LEFT + blocks * (each + GAP)
    lane = len(KINDS) * PITCH + 0.3
    height = TOP + ranks * lane + BOTTOM
    axes = _sheet(width, height)
    title = f"{number + 1} of {len(of_ranks[0])}: {moments[0].doing}"
    axes.text(0.1, 0.2, title, weight="bold", va="center")
    for block in range(blocks):
        centre = LEFT + block * (each + GAP) + each / 2
        bold = "bold" if block == moments[0].block else "normal"
        axes.text(centre, 0.48, f"block {block + 1}", ha="center", va="center", weight=bold)
    for rank, moment in enumerate(moments):
        top = TOP + rank * lane
        middle = top + len(KINDS) * PITCH / 2
        axes.text(0.1, middle, f"rank {rank}", color=rank_colour(rank), weight="bold", va="center")
        for row, kind in enumerate(KINDS):
            y = top + row * PITCH
            axes.text(LEFT - 0.1, y + BAR / 2, kind, ha="right", va="center", size=8)
            for block, held in enumerate(moment.held(kind)):
                local = rank if kind == "gradient" and held == WHOLE else None
                for owner in range(ranks):
                    x = LEFT + block * (each + GAP) + owner * BOX
                    _box(axes, x, y, BOX * 0.94, BAR, owner, _has(held, owner, rank), local)
    return axes.figure


@style()
def step_strip_plot(of_ranks: Sequence[Sequence[Moment]]) -> Figure:
    """The whole step at once: a column a moment, a row a block, for each rank, weights alone."""
    ranks, moments = len(of_ranks), len(of_ranks[0])
    blocks = len(of_ranks[0][0].weights)
    column, row, left, top = 0.31, 0.34, 1.62, 1.55  # inches
    lane = blocks * row + 0.3
    axes = _sheet(max(WIDTH, left + moments * column + 0.65), top + ranks * lane)
    for number, moment in enumerate(of_ranks[0]):
        x = left + (number + 0.5) * column
        axes.text(x, top - 0.1, moment.doing, rotation=60, ha="left", va="bottom", size=8)
    for name, first, last in _phases(of_ranks[0]):
        ends = left + first * column, left + (last + 1) * column - 0.05
        axes.plot(ends, [top - 0.04] * 2, color=INK, linewidth=1.2)
        axes.text(sum(ends) / 2, axes.get_ylim()[0] - 0.12, name, ha="center", va="center", size=9)
    for rank, of_rank in enumerate(of_ranks):
        base = top + rank * lane
        middle = base + blocks * row / 2
        axes.text(0.1, middle, f"rank {rank}", color=rank_colour(rank), weight="bold", va="center")
        for block in range(blocks):
            y = base + block * row
            name = f"block {block + 1}"
            axes.text(left - 0.12, y + row / 2, name, ha="right", va="center", size=9)
            for number, moment in enumerate(of_rank):
                x, part = left + number * column, row * 0.8 / ranks
                for owner in range(ranks):
                    filled = _has(moment.weights[block], owner, rank)
                    _box(axes, x, y + owner * part, column * 0.86, part * 0.92, owner, filled)
    return axes.figure


def _phases(moments: Sequence[Moment]) -> list[tuple[str, int, int]]:
    """Forward and backward, each with the numbers of its first and last moment."""
    scattered = [n for n, moment in enumerate(moments) if moment.doing.startswith("reduce-scatter")]
    forwards = [n for n, moment in enumerate(moments) if moment.doing.startswith("forward")]
    turn = forwards[-1] + 1  # the moment that frees the last block
    return [("forward", 1, turn), ("backward", turn + 1, scattered[-1])]


def alt_text_of_step_frame(of_ranks: Sequence[Sequence[Moment]], number: int) -> str:
    """One moment in words: what each rank holds beyond its own pieces of the weights."""
    moments = [moments[number] for moments in of_ranks]
    words = [f"rank {rank} {_beyond_pieces(moment)}" for rank, moment in enumerate(moments)]
    return f"Moment {number + 1}, {moments[0].doing}: {'; '.join(words)}."


def alt_text_of_step(of_ranks: Sequence[Sequence[Moment]]) -> str:
    """The strip in words: at most how many blocks are whole, and in which order."""
    whole = [[b + 1 for b, held in enumerate(m.weights) if held == WHOLE] for m in of_ranks[0]]
    order = []
    for blocks in whole:
        if blocks and (not order or order[-1] != blocks):
            order.append(blocks)
        elif not blocks and order and order[-1]:
            order.append([])
    spoken = [" and ".join(map(str, blocks)) for blocks in order if blocks]
    most = max(map(len, whole))
    return (
        f"A step on {len(of_ranks)} ranks, moment by moment. At most {most} "
        f"{'block is' if most == 1 else 'blocks are'} whole at a time, on all ranks alike, in the "
        f"order {', '.join(spoken)}. All else is held in pieces, one a rank."
    )


def _beyond_pieces(moment: Moment) -> str:
    words = [
        f"the {held} {kind} of block {block + 1}"
        for kind in KINDS
        for block, held in enumerate(moment.held(kind))
        if held == WHOLE or (held == PIECE and kind == "gradient")
    ]
    words = [word.replace("the piece gradient", "its piece of the gradient") for word in words]
    return "has its pieces" + (f" and {', '.join(words)}" if words else " alone")


def _sheet(width: float, height: float) -> Axes:
    """Axes that fill a figure, in inches from its upper left corner."""
    axes = Figure((width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def _has(held: str, owner: int, rank: int) -> bool:
    return held == WHOLE or (held == PIECE and owner == rank)


def _box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    owner: int,
    filled: bool,
    local: int | None = None,
) -> None:
    """The box of `owner`'s piece; striped where it is what rank `local` has computed alone."""
    look = {"facecolor": rank_colour(owner), "edgecolor": INK}
    if not filled:
        look = {"facecolor": "white", "edgecolor": tint(rank_colour(owner), 0.6)}
    elif local is not None:
        colour = rank_colour(local)
        look = {"facecolor": tint(colour), "edgecolor": colour, "hatch": "/////"}
    axes.add_patch(Rectangle((x, y), width, height, linewidth=0.6, **look))
