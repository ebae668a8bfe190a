"""Chapter 05: what ranks hold before and after each collective, and between the halves of one.

A box is a number, filled with the colour of the rank it comes from. The stripes in it, one for each
rank, mark the ranks whose numbers it contains, by colour and by place. Both are computed from what
the ranks held before: a number that no rank held, and that is no sum of such numbers, stays grey.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.experiments.collectives import every_call
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.launcher.process_group import set_up
from manyranks.rank_colours import rank_colour

STAGE_BOX, STAGE = 0.55, 1.62  # inches: of a box in a row of stages, and of a stage at least
NARROW_BOX, NOTHING = 0.45, 0.8  # inches: of a box side by side with others, and of an empty hand


def run_collectives(*names: str, ranks: int = 4) -> dict[str, list[tuple]]:
    """For each collective and rank: (before, after), from real ranks."""
    return {name: launch(every_call.run, name, ranks=ranks) for name in names}


def stages(ranks: int = 4) -> dict[str, list]:
    """What each rank holds at the start, after reduce_scatter, and after all_gather."""
    of_ranks = launch(run_both_halves, ranks=ranks)
    titles = ("at the start", "after reduce_scatter", "after all_gather")
    return dict(zip(titles, map(list, zip(*of_ranks, strict=True)), strict=True))


def run_both_halves() -> tuple[Tensor, Tensor, list[Tensor]]:
    """In a rank: its numbers, its piece of the sum, and all pieces."""
    mine = every_call.numbers(set_up(bare=False))
    pieces = list(mine.chunk(dist.get_world_size()))
    own = torch.empty_like(pieces[0])
    dist.reduce_scatter(own, pieces)
    everything = [torch.empty_like(own) for _ in pieces]
    dist.all_gather(everything, own)
    return mine, own, everything


# The pictures


@figures.house_style
def collectives_plot(results: Mapping[str, Sequence]) -> figures.Picture:
    """The ranks' boxes before and after each collective, one below the other, a row a rank.

    `results` has for each title what `launch` returned: for each rank a pair (before, after) of
    tensors, lists of tensors, numbers or None. Raises ValueError for more ranks or numbers than a
    picture can show.
    """
    sides = {name: split_pairs(pairs) for name, pairs in results.items()}
    heights = [
        HEAD * (1 + bool(name)) + PITCH * len(before) + 0.08 for name, (before, _) in sides.items()
    ]
    axes, top = figures.sheet(figures.WIDTH, sum(heights)), 0.0
    for (name, (before, after)), height in zip(sides.items(), heights, strict=True):
        _both_sides(axes, top, name, before, after)
        top += height
    words = (_words(name or "What the ranks hold", *both) for name, both in sides.items())
    return figures.Picture(axes.figure, " ".join(words))


@figures.house_style
def side_by_side_plot(results: Mapping[str, Sequence]) -> figures.Picture:
    """As `collectives_plot`, but the collectives stand beside each other, with narrower boxes."""
    sides = {name: split_pairs(pairs) for name, pairs in results.items()}
    ranks = len(next(iter(sides.values()))[0])
    axes = figures.sheet(figures.WIDTH, 2 * HEAD + PITCH * ranks)
    first = 2 * HEAD + HEIGHT / 2
    figures.label_ranks(axes, ranks, first, PITCH)
    middle, left = first + (ranks - 1) * PITCH / 2, LEFT
    for name, (before, after) in sides.items():
        axes.text(left, HEAD / 2, name, va="center", weight="bold")
        for title, rows in (("before", before), ("after", after)):
            longest = max(rows, key=lambda row: sum(map(len, row)))
            room = NARROW_BOX * sum(map(len, longest)) + GAP * (len(longest) - 1)
            axes.text(left, 1.5 * HEAD, title, va="center", size=10)
            draw_rows(axes, rows, before, (left, 2 * HEAD), room=room)
            left += max(room, 0.0 if all(rows) else NOTHING)
            if title == "before":
                ends = (left + 0.04, middle), (left + 0.32, middle)
                figures.arrow(axes, *ends, arrowstyle="-|>")
                left += 0.4
        left += 0.45
    words = (_words(name, *both) for name, both in sides.items())
    return figures.Picture(axes.figure, " ".join(words))


@figures.house_style
def stages_plot(stages: Mapping[str, Sequence]) -> figures.Picture:
    """What the ranks hold, stage after stage, from left to right; colours follow the first stage.

    `stages` has for each title what each rank holds: tensors, lists of tensors, or None.
    """
    columns = {
        title: [numbers_of(value) for value in of_ranks] for title, of_ranks in stages.items()
    }
    start, left = next(iter(columns.values())), LEFT
    axes = figures.sheet(figures.WIDTH, 2 * HEAD + PITCH * len(start))
    first = 2 * HEAD + HEIGHT / 2
    figures.label_ranks(axes, len(start), first, PITCH)
    middle = first + (len(start) - 1) * PITCH / 2
    for title, rows in columns.items():
        longest = max(rows, key=lambda row: sum(map(len, row)))
        room = STAGE_BOX * sum(map(len, longest)) + GAP * (len(longest) - 1)
        if left > LEFT:
            figures.arrow(axes, (left - 0.38, middle), (left - 0.06, middle), arrowstyle="-|>")
        axes.text(left, HEAD, title, va="center", weight="bold")
        draw_rows(axes, rows, start, (left, 2 * HEAD), room=room)
        left += max(room, STAGE) + 0.42
    words = ". ".join(f"{title}: {rows_text(rows)}" for title, rows in columns.items())
    return figures.Picture(axes.figure, f"What the ranks hold, stage after stage. {words}.")


def _words(title: str, before: Sequence[Row], after: Sequence[Row]) -> str:
    texts = [
        f"rank {rank}: {row_text(old)} before, {row_text(new)} after"
        for rank, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    return f"{title}. {'; '.join(texts)}."


def _both_sides(
    axes: figures.Axes, top: float, name: str, before: Sequence[Row], after: Sequence[Row]
) -> None:
    if name:
        axes.text(LABEL, top + HEAD / 2, name, va="center", weight="bold")
        top += HEAD
    axes.text(LEFT, top + HEAD / 2, "before", va="center", size=10)
    axes.text(RIGHT, top + HEAD / 2, "after", va="center", size=10)
    top += HEAD
    figures.label_ranks(axes, len(before), top + HEIGHT / 2, PITCH)
    middle = top + (len(before) - 1) * PITCH / 2 + HEIGHT / 2
    figures.arrow(axes, (MIDDLE - 0.16, middle), (MIDDLE + 0.16, middle), arrowstyle="-|>")
    draw_rows(axes, before, before, (LEFT, top))
    draw_rows(axes, after, before, (RIGHT, top))


# Boxes with numbers


MAX_RANKS = 8  # as many as have a colour of their own
LARGEST_WHOLE_NUMBER = 1e7  # whole numbers below it are shown with all their digits

Row = list[list[float]]  # what a rank holds: its tensors' numbers, a list a tensor


def numbers_of(value: Any) -> Row:
    """Tensors or numbers, one or a list of them, or None, as lists of numbers."""
    if value is None:
        return []
    if isinstance(value, int | float):
        return [[value]]
    if not isinstance(value, list | tuple):
        return [value.detach().cpu().flatten().tolist()]
    if value and all(isinstance(part, int | float) for part in value):
        return [list(value)]
    return [piece for part in value for piece in numbers_of(part)]


def split_pairs(pairs: Sequence) -> tuple[list[Row], list[Row]]:
    """Both sides of what `launch` returned for a worker that returns (before, after).

    Raises ValueError for more ranks than have colours of their own.
    """
    if len(pairs) > MAX_RANKS:
        raise ValueError(f"A picture shows up to {MAX_RANKS} ranks, these are {len(pairs)}.")
    return [numbers_of(before) for before, _ in pairs], [numbers_of(after) for _, after in pairs]


def origins(before: Sequence[Row]) -> dict[float, frozenset[int]]:
    """The ranks behind every number that one rank held or that is a sum over ranks.

    A sum adds the numbers at the same place of several ranks. A number with two possible origins is
    left out; a rank's own number takes precedence over a sum.
    """
    rows = [list(itertools.chain(*row)) for row in before]
    own: dict[float, set] = {}
    sums: dict[float, set] = {}
    for rank, row in enumerate(rows):
        for number in row:
            own.setdefault(number, set()).add(frozenset([rank]))
    for place in range(max(map(len, rows), default=0)):
        there = [rank for rank, row in enumerate(rows) if place < len(row)]
        for count in range(2, len(there) + 1):
            for ranks in itertools.combinations(there, count):
                number = sum(rows[rank][place] for rank in ranks)
                sums.setdefault(number, set()).add(frozenset(ranks))
    return {number: next(iter(ways)) for number, ways in (sums | own).items() if len(ways) == 1}


def row_text(row: Row) -> str:
    """What one rank holds: "1 2 | 10 20", a bar between tensors, or "nothing"."""
    return " | ".join(" ".join(map(number_text, piece)) for piece in row) or "nothing"


def rows_text(rows: Sequence[Row]) -> str:
    """What each rank holds: "rank 0 1 2; rank 1 nothing"."""
    return "; ".join(f"rank {rank} {row_text(row)}" for rank, row in enumerate(rows))


def number_text(number: float) -> str:
    """A number, short enough for a box: 3, 277.75, 1.2e+09, nan."""
    whole = number == number and abs(number) < LARGEST_WHOLE_NUMBER and number == int(number)
    return f"{int(number)}" if whole else f"{number:.5g}"


# Drawing

# Inches
BOX, HEIGHT = 0.74, 0.36  # a box's greatest width, and its height
PITCH, GAP = 0.48, 0.1  # from row to row, and between tensors
HEAD = 0.27  # height of a line of text above the boxes
LABEL, LEFT, MIDDLE, RIGHT = 0.1, 0.95, 4.62, 5.0  # where names, "before", arrow, "after" are
ROOM = 3.3  # width of the boxes of one side
SMALLEST = 6  # points; smaller numbers cannot be read


def draw_rows(
    axes: figures.Axes,
    rows: Sequence[Row],
    before: Sequence[Row],
    corner: tuple[float, float],
    *,
    pitch: float = PITCH,
    room: float = ROOM,
) -> float:
    """Draw what each rank holds, coloured by the rank that had it before; return a box's width."""
    ranks_of_number = origins(before)
    box = min([BOX, *(_share(row, room) for row in rows)])
    longest = max((len(number_text(n)) for row in rows for piece in row for n in piece), default=1)
    points = min(11.0, 82 * box / max(longest, 2))
    if points < SMALLEST:
        raise ValueError("These numbers do not fit into a picture: draw smaller tensors.")
    for rank, row in enumerate(rows):
        top = corner[1] + rank * pitch
        if not row:
            _empty(axes, corner[0], top)
        same = list(itertools.chain(*before[rank]))
        for place, (left, number) in enumerate(_places(row, corner[0], box)):
            unchanged = same[place : place + 1] == [number]
            ranks = frozenset([rank]) if unchanged else ranks_of_number.get(number, frozenset())
            _box(axes, (left, top, box), ranks, len(rows))
            middle = left + box / 2 - 0.025, top + HEIGHT / 2 - 0.03
            axes.text(*middle, number_text(number), ha="center", va="center", size=points)
    return box


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


def _empty(axes: figures.Axes, left: float, top: float) -> None:
    look = {"facecolor": "none", "edgecolor": "#8f8f8f", "linestyle": (0, (3, 3)), "linewidth": 1}
    figures.box(axes, (left, top), (NOTHING, HEIGHT), "nothing", frame=look)


def _box(
    axes: figures.Axes, place: tuple[float, float, float], ranks: frozenset[int], slots: int
) -> None:
    """A box at (left, top, width), with a stripe at the bottom for each of the ranks."""
    left, top, width = place[0], place[1], place[2] - 0.05
    owner = next(iter(ranks)) if len(ranks) == 1 else None
    frame = {"facecolor": "white"} if len(ranks) > 1 else {}
    figures.box(axes, (left, top), (width, HEIGHT), "", owner, frame=frame)
    slot = (width - 0.06) / slots
    for rank in ranks:
        corner = left + 0.03 + rank * slot, top + HEIGHT - 0.09
        stripe = {"facecolor": rank_colour(rank), "linewidth": 0}
        axes.add_patch(figures.Rectangle(corner, max(slot - 0.015, 0.01), 0.06, **stripe))
