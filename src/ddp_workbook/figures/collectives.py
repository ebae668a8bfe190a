"""Chapter 05's pictures: what ranks hold before and after a collective, the ring, time by size.

A box is a number, filled with the colour of the rank it comes from. The stripes in it, one for each
rank, mark the ranks whose numbers it contains, by colour and by place. Both are computed from what
the ranks held before: a number that no rank held, and that is no sum of such numbers, stays grey.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ddp_workbook.figures.holdings import (
    Row,
    before_and_after,
    held,
    number_text,
    origins,
    row_text,
)
from ddp_workbook.figures.palette import rank_colour, rank_marker, series_colour, tint
from ddp_workbook.figures.style import FAINT, INK, WIDTH, label_rows, style

BOX, HEIGHT, PITCH, GAP = (
    0.74,
    0.36,
    0.48,
    0.1,
)  # inches: of a box, between rows, between tensors
HEAD = 0.27  # inches of a line of text above the boxes
LABEL, LEFT, MIDDLE, RIGHT = (
    0.1,
    0.95,
    4.62,
    5.0,
)  # of names, "before", the arrow, "after"
ROOM = 3.3  # inches for the boxes of one side
SMALLEST = 6  # points; smaller numbers cannot be read

RING_PITCH = 0.6  # inches from row to row, with room for arrows
RING_WIDTH = 4.0  # inches of a frame

DOTS = "#bdbdbd"


def collective_plot(moved: Sequence, title: str = "") -> Figure:
    """The ranks' boxes before and after, a row a rank; `moved` is what `launch` returned.

    For each rank that is a pair (before, after) of tensors, lists of tensors, numbers or None.
    Raises ValueError for more ranks or numbers than a picture can show.
    """
    return collectives_plot({title: moved})


@style()
def collectives_plot(named: Mapping[str, Sequence]) -> Figure:
    """Several collectives, one below the other, in the same style."""
    sides = {name: before_and_after(moved) for name, moved in named.items()}
    heights = [
        HEAD * (1 + bool(name)) + PITCH * len(before) + 0.08 for name, (before, _) in sides.items()
    ]
    axes, top = _sheet(WIDTH, sum(heights)), 0.0
    for (name, (before, after)), height in zip(sides.items(), heights, strict=True):
        _both_sides(axes, top, name, before, after)
        top += height
    return axes.figure


def alt_text_of_moves(moved: Sequence, title: str = "What the ranks hold") -> str:
    """What each rank held before and after, in one line: the alt text of the picture."""
    before, after = before_and_after(moved)
    each = [
        f"rank {rank}: {row_text(old)} before, {row_text(new)} after"
        for rank, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    return f"{title}. {'; '.join(each)}."


@style()
def waiting_plot(times: Sequence[tuple[float, float]]) -> Figure:
    """A bar a rank: how long it worked, in its colour, and how long it then waited, hatched.

    `times` holds for each rank when it reached the collective and when it left it, in seconds since
    a common start.
    """
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


# The ring


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


def ring_frame_plot(all_frames: Sequence[RingFrame], number: int) -> Figure:
    """One frame: a row a rank, a column a piece, an arrow for each piece that was just sent."""
    return _draw_frames(all_frames, [number], across=1)


def ring_frames_plot(all_frames: Sequence[RingFrame], across: int = 2) -> Figure:
    """All frames side by side, `across` in a line: for pages without a slider."""
    return _draw_frames(all_frames, range(len(all_frames)), across)


def alt_text_of_frame(frame: RingFrame) -> str:
    """A frame as text: which piece each rank sent, and what each rank holds."""
    rows = "; ".join(f"rank {rank} {row_text([row])}" for rank, row in enumerate(frame.rows))
    moves = [
        f"rank {rank} sent piece {piece} to rank {(rank + 1) % len(frame.rows)}"
        for rank, piece in enumerate(frame.sent)
    ]
    return f"{frame.title.capitalize()}. " + (f"{', '.join(moves)}. " if moves else "") + rows + "."


# Time against size


@style()
def alpha_beta_plot(times: pd.DataFrame, lines: pd.DataFrame) -> Figure:
    """Rounds as dots, the fastest as markers, the fitted line; a panel an op, logarithmic axes.

    `times` has the columns op, ranks, bytes and seconds; `lines` has for each op and number of
    ranks latency (s), bandwidth (bytes/s) and knee (bytes). On logarithmic axes
    latency + size / bandwidth is flat, then steep; the dotted line is the knee.
    """
    keys = ["op", "ranks", "bytes"]
    points = times.groupby(keys, sort=False, as_index=False)["seconds"].min()
    ops, counts = list(points["op"].unique()), list(points["ranks"].unique())
    figure = Figure((WIDTH, 3.6), layout="constrained")
    panels = figure.subplots(1, len(ops), sharey=True, squeeze=False)[0]
    sizes = np.geomspace(points["bytes"].min(), points["bytes"].max(), 60)
    for axes, op in zip(panels, ops, strict=True):
        for look, count in enumerate(counts):
            every, mine, line = (_of(table, op, count) for table in (times, points, lines))
            colour, line = series_colour(2 * look), line.iloc[0]
            axes.plot(every["bytes"], every["seconds"] * 1e3, "o", color=DOTS, ms=2.5, zorder=1)
            marker = {"marker": rank_marker(look), "markersize": 6, "linestyle": "none"}
            axes.plot(mine["bytes"], mine["seconds"] * 1e3, **marker, color=colour)
            of_line = (line.latency + sizes / line.bandwidth) * 1e3
            axes.plot(sizes, of_line, color=colour)
            if sizes[0] <= line.knee <= sizes[-1]:
                axes.axvline(line.knee, color=colour, linestyle="dotted")
        axes.set(xscale="log", yscale="log", title=op, xlabel="bytes")
        axes.set_xticks(*_ticks(sizes), minor=False)
        axes.minorticks_off()
    panels[0].set_ylabel("milliseconds")
    looks = [
        Line2D([], [], color=series_colour(2 * look), marker=rank_marker(look), label=f"{n} ranks")
        for look, n in enumerate(counts)
    ]
    figure.legend(handles=looks, loc="outside upper left", ncols=4)
    return figure


# Boxes


def _sheet(width: float, height: float) -> Axes:
    """Axes that fill a figure, in inches from its upper left corner."""
    axes = Figure((width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def _name_rows(axes: Axes, ranks: int, top: float, pitch: float = PITCH, left: float = 0.0) -> None:
    """Write "rank 0", "rank 1", ... to the left of the rows."""
    for rank in range(ranks):
        axes.text(left + LABEL, top + rank * pitch + HEIGHT / 2, f"rank {rank}", va="center")


def _draw_rows(
    axes: Axes,
    rows: Sequence[Row],
    before: Sequence[Row],
    corner: tuple[float, float],
    *,
    pitch: float = PITCH,
    room: float = ROOM,
) -> float:
    """Draw what each rank holds, coloured by the rank that had it before; return a box's width."""
    known = origins(before)
    box = min([BOX, *(_share(row, room) for row in rows)])
    longest = max((len(number_text(n)) for row in rows for piece in row for n in piece), default=1)
    points = min(11.0, 86 * box / max(longest, 2))
    if points < SMALLEST:
        raise ValueError("These numbers do not fit into a picture: draw smaller tensors.")
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
            axes.text(*middle, number_text(number), ha="center", va="center", size=points)
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
    _name_rows(axes, len(before), top)
    middle = top + (len(before) - 1) * PITCH / 2 + HEIGHT / 2
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.4}
    axes.annotate("", (MIDDLE + 0.16, middle), (MIDDLE - 0.16, middle), arrowprops=arrow)
    _draw_rows(axes, before, before, (LEFT, top))
    _draw_rows(axes, after, before, (RIGHT, top))


def _share(row: Row, room: float) -> float:
    """The width of a box, in inches, at which the row fits."""
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
    """A box at (left, top, width), with a stripe at the bottom for each of the ranks."""
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


@style()
def _draw_frames(all_frames: Sequence[RingFrame], numbers: Sequence[int], across: int) -> Figure:
    ranks, numbers = len(all_frames[0].rows), list(numbers)
    height = 2 * HEAD + ranks * RING_PITCH + 0.2
    down = -(-len(numbers) // across)
    axes = _sheet(across * RING_WIDTH + 0.2, down * height)
    for index, number in enumerate(numbers):
        corner = index % across * RING_WIDTH, index // across * height
        _draw_frame(axes, corner, all_frames[number], all_frames[0])
    return axes.figure


def _draw_frame(
    axes: Axes, corner: tuple[float, float], frame: RingFrame, first: RingFrame
) -> None:
    left, top = corner
    axes.text(left + 0.1, top + HEAD / 2, frame.title, va="center", weight="bold")
    top += 2 * HEAD
    rows, before = [held(row) for row in frame.rows], [held(row) for row in first.rows]
    _name_rows(axes, len(rows), top, RING_PITCH, left)
    box = _draw_rows(
        axes, rows, before, (left + LEFT, top), pitch=RING_PITCH, room=RING_WIDTH - LEFT
    )
    for rank, piece in enumerate(frame.sent):
        middle, last = left + LEFT + piece * box + box / 2 - 0.025, rank == len(rows) - 1
        start_at = top + rank * RING_PITCH + HEIGHT
        _arrow(axes, middle, start_at, start_at + RING_PITCH - HEIGHT, rank)
        if last:  # the ring closes: the last rank sends to rank 0
            _arrow(axes, middle, top - (RING_PITCH - HEIGHT), top, rank)


def _arrow(axes: Axes, x: float, start_at: float, end: float, rank: int) -> None:
    look = {"arrowstyle": "-|>", "color": rank_colour(rank), "linewidth": 2.2}
    axes.annotate("", (x, end), (x, start_at), arrowprops=look | {"shrinkA": 0, "shrinkB": 0})


def _ticks(sizes: np.ndarray) -> tuple[list[int], list[str]]:
    """Powers of two within the axis, and their names."""
    named = {2**10: "1 Ki", 2**15: "32 Ki", 2**20: "1 Mi", 2**25: "32 Mi"}
    inside = {size: name for size, name in named.items() if sizes[0] <= size <= sizes[-1]}
    return list(inside), list(inside.values())


def _of(table: pd.DataFrame, op: str, count: int) -> pd.DataFrame:
    return table[(table["op"] == op) & (table["ranks"] == count)]
