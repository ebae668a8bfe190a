"""Chapter 05: the ring, a frame a round."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.collectives.boxes import HEAD, HEIGHT, LEFT, draw_rows, name_rows, sheet
from ddp_workbook.figures.holdings import held, row_text
from ddp_workbook.figures.palette import rank_colour
from ddp_workbook.figures.style import WIDTH, style

RING_PITCH = 0.6  # inches from row to row, with room for arrows
RING_WIDTH = 4.0  # inches of a frame


class RingFrame(NamedTuple):
    """What all ranks hold after a round, and which piece each of them sent in it."""

    title: str
    rows: list[list[float]]  # a number a piece, by rank
    sent: list[int]  # by rank; empty at the start


def ring_frames(recorded: Sequence[Sequence]) -> list[RingFrame]:
    """The rounds of what `launch(frames_worker, ranks=N)` returned.

    Rank r sent the piece that changed on rank r + 1.
    """
    rounds = list(zip(*recorded, strict=True))  # [round][rank][piece]
    frames = [RingFrame("start", list(rounds[0]), [])]
    for number, (old, new) in enumerate(itertools.pairwise(rounds), start=1):
        pieces = range(len(recorded))
        changed = [
            next(piece for piece in pieces if had[piece] != has[piece])
            for had, has in zip(old, new, strict=True)
        ]
        half = "add" if number < len(recorded) else "pass on"
        sent = changed[1:] + changed[:1]
        frames.append(RingFrame(f"round {number}: {half}", list(new), sent))
    return frames


@style()
def ring_frame_plot(all_frames: Sequence[RingFrame], number: int) -> Figure:
    """One frame: a row a rank, a column a piece, an arrow for each piece that was just sent."""
    axes = sheet(RING_WIDTH + 0.2, _height(all_frames))
    name_rows(axes, len(all_frames[0].rows), 2 * HEAD, RING_PITCH)
    _draw_frame(axes, (LEFT, 0), all_frames[number], all_frames[0], RING_WIDTH - LEFT)
    return axes.figure


@style()
def ring_frames_plot(all_frames: Sequence[RingFrame], across: int = 4) -> Figure:
    """All frames, `across` in a line, in the order in which one reads."""
    down, height = -(-len(all_frames) // across), _height(all_frames)
    axes = sheet(WIDTH, down * height)
    pitch = (WIDTH - LEFT) / across
    for line in range(down):
        name_rows(axes, len(all_frames[0].rows), line * height + 2 * HEAD, RING_PITCH)
    for index, frame in enumerate(all_frames):
        corner = LEFT + index % across * pitch, index // across * height
        _draw_frame(axes, corner, frame, all_frames[0], pitch - 0.2)
    return axes.figure


def alt_text_of_frames(all_frames: Sequence[RingFrame]) -> str:
    """All frames as text."""
    return " ".join(map(alt_text_of_frame, all_frames))


def alt_text_of_frame(frame: RingFrame) -> str:
    """A frame as text: which piece each rank sent, and what each rank holds."""
    rows = "; ".join(f"rank {rank} {row_text([row])}" for rank, row in enumerate(frame.rows))
    moves = [
        f"rank {rank} sent piece {piece} to rank {(rank + 1) % len(frame.rows)}"
        for rank, piece in enumerate(frame.sent)
    ]
    return f"{frame.title.capitalize()}. " + (f"{', '.join(moves)}. " if moves else "") + rows + "."


def _height(all_frames: Sequence[RingFrame]) -> float:
    return 2 * HEAD + len(all_frames[0].rows) * RING_PITCH + 0.2


def _draw_frame(
    axes: Axes, corner: tuple[float, float], frame: RingFrame, first: RingFrame, room: float
) -> None:
    left, top = corner
    axes.text(left, top + HEAD / 2, frame.title, va="center", weight="bold")
    top += 2 * HEAD
    rows, before = [held(row) for row in frame.rows], [held(row) for row in first.rows]
    box = draw_rows(axes, rows, before, (left, top), pitch=RING_PITCH, room=room)
    for rank, piece in enumerate(frame.sent):
        middle, last = left + piece * box + box / 2 - 0.025, rank == len(rows) - 1
        start_at = top + rank * RING_PITCH + HEIGHT
        _arrow(axes, middle, start_at, start_at + RING_PITCH - HEIGHT, rank)
        if last:  # the ring closes: the last rank sends to rank 0
            _arrow(axes, middle, top - (RING_PITCH - HEIGHT), top, rank)


def _arrow(axes: Axes, x: float, start_at: float, end: float, rank: int) -> None:
    look = {"arrowstyle": "-|>", "color": rank_colour(rank), "linewidth": 2.2}
    axes.annotate("", (x, end), (x, start_at), arrowprops=look | {"shrinkA": 0, "shrinkB": 0})
