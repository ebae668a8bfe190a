"""The frames of a ring all-reduce, drawn from what ranks held after each round."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.collectives import HEAD, HEIGHT, LEFT, draw_rows, name_rows, sheet
from ddp_workbook.figures.holdings import held, row_words
from ddp_workbook.figures.palette import rank_colour
from ddp_workbook.figures.style import PictureError, style

RANKS = (1, 6)  # what the pictures can show
PITCH = 0.6  # inches from row to row: the arrows are between the rows
PANEL = 4.0  # inches of a frame's width


class Frame(NamedTuple):
    """What all ranks hold after a round, and which piece each of them has just sent on."""

    title: str
    rows: list[list[float]]  # a number a piece, by rank
    sent: list[int]  # by rank; empty at the start


def frames(recorded: Sequence[Sequence]) -> list[Frame]:
    """The rounds of what `launch(frames_worker, ranks=N)` returned.

    Raises PictureError for a number of ranks that the pictures cannot show.
    """
    if not RANKS[0] <= len(recorded) <= RANKS[1]:
        raise PictureError(
            f"The pictures of a ring show {RANKS[0]} to {RANKS[1]} ranks; these are "
            f"{len(recorded)}."
        )
    ranks, made = len(recorded), []
    for number, of_ranks in enumerate(zip(*recorded, strict=True)):
        half = "add" if number < ranks else "pass on"
        title = f"round {number}: {half}" if number else "start"
        sent = [piece for piece, _ in of_ranks if piece is not None]
        made.append(Frame(title, [row for _, row in of_ranks], sent))
    return made


def frame_plot(all_frames: Sequence[Frame], number: int) -> Figure:
    """One frame: a row a rank, a column a piece, an arrow for each piece that was just sent."""
    return _plot(all_frames, [number], across=1)


def frames_plot(all_frames: Sequence[Frame], across: int = 2) -> Figure:
    """All frames side by side, `across` in a line: for paper, where no slider moves."""
    return _plot(all_frames, range(len(all_frames)), across)


def frame_words(frame: Frame) -> str:
    """A frame as text: what each rank holds, and who has sent what."""
    rows = "; ".join(f"rank {rank} {row_words([row])}" for rank, row in enumerate(frame.rows))
    moves = [
        f"rank {rank} sent piece {piece} to rank {(rank + 1) % len(frame.rows)}"
        for rank, piece in enumerate(frame.sent)
    ]
    return f"{frame.title.capitalize()}. " + (f"{', '.join(moves)}. " if moves else "") + rows + "."


@style()
def _plot(all_frames: Sequence[Frame], numbers: Sequence[int], across: int) -> Figure:
    if not all_frames:
        raise PictureError("There are no frames to draw.")
    ranks, numbers = len(all_frames[0].rows), list(numbers)
    height = 2 * HEAD + ranks * PITCH + 0.2
    down = -(-len(numbers) // across)
    axes = sheet(across * PANEL + 0.2, down * height)
    for index, number in enumerate(numbers):
        corner = index % across * PANEL, index // across * height
        _frame(axes, corner, all_frames[number], all_frames[0])
    return axes.figure


def _frame(axes: Axes, corner: tuple[float, float], frame: Frame, first: Frame) -> None:
    left, top = corner
    axes.text(left + 0.1, top + HEAD / 2, frame.title, va="center", weight="bold")
    top += 2 * HEAD
    rows, before = [held(row) for row in frame.rows], [held(row) for row in first.rows]
    name_rows(axes, len(rows), top, PITCH, left)
    box = draw_rows(axes, rows, before, (left + LEFT, top), pitch=PITCH, room=PANEL - LEFT)
    for rank, piece in enumerate(frame.sent):
        middle, last = left + LEFT + piece * box + box / 2 - 0.025, rank == len(rows) - 1
        start_at = top + rank * PITCH + HEIGHT
        _arrow(axes, middle, start_at, start_at + PITCH - HEIGHT, rank)
        if last:  # the ring closes: what leaves below arrives above
            _arrow(axes, middle, top - (PITCH - HEIGHT), top, rank)


def _arrow(axes: Axes, x: float, start_at: float, end: float, rank: int) -> None:
    look = {"arrowstyle": "-|>", "color": rank_colour(rank), "linewidth": 2.2}
    axes.annotate("", (x, end), (x, start_at), arrowprops=look | {"shrinkA": 0, "shrinkB": 0})
