"""Chapter 05: what ranks hold before and after each collective, and between the halves of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook import figures
from ddp_workbook.experiments.collectives import every_call
from ddp_workbook.experiments.collectives.number_boxes import (
    GAP,
    HEAD,
    HEIGHT,
    LABEL,
    LEFT,
    MIDDLE,
    PITCH,
    RIGHT,
    Row,
    before_and_after,
    draw_rows,
    numbers_of,
    row_text,
    rows_text,
)
from ddp_workbook.launcher.launch import launch
from ddp_workbook.launcher.process_group import set_up

STAGE_BOX, STAGE = 0.55, 1.62  # inches: of a box in a row of stages, and of a stage at least


def held(*names: str, ranks: int = 4) -> dict[str, list[tuple]]:
    """For each collective and rank: (before, after), from real ranks."""
    return {name: launch(every_call.run, name, ranks=ranks) for name in names}


def stages(ranks: int = 4) -> dict[str, list]:
    """What each rank holds at the start, after reduce_scatter, and after all_gather."""
    of_ranks = launch(two_halves, ranks=ranks)
    titles = ("at the start", "after reduce_scatter", "after all_gather")
    return dict(zip(titles, map(list, zip(*of_ranks, strict=True)), strict=True))


def two_halves() -> tuple[Tensor, Tensor, list[Tensor]]:
    """In a rank: its numbers, its piece of the sum, and all pieces."""
    mine = every_call.numbers(set_up(bare=False))
    pieces = list(mine.chunk(dist.get_world_size()))
    own = torch.empty_like(pieces[0])
    dist.reduce_scatter(own, pieces)
    everything = [torch.empty_like(own) for _ in pieces]
    dist.all_gather(everything, own)
    return mine, own, everything


# The pictures


@figures.drawn
def collectives_plot(named: Mapping[str, Sequence]) -> figures.Picture:
    """The ranks' boxes before and after each collective, one below the other, a row a rank.

    `named` has for each title what `launch` returned: for each rank a pair (before, after) of
    tensors, lists of tensors, numbers or None. Raises ValueError for more ranks or numbers than a
    picture can show.
    """
    sides = {name: before_and_after(moved) for name, moved in named.items()}
    heights = [
        HEAD * (1 + bool(name)) + PITCH * len(before) + 0.08 for name, (before, _) in sides.items()
    ]
    axes, top = figures.sheet(figures.WIDTH, sum(heights)), 0.0
    for (name, (before, after)), height in zip(sides.items(), heights, strict=True):
        _both_sides(axes, top, name, before, after)
        top += height
    words = (_words(name or "What the ranks hold", *both) for name, both in sides.items())
    return figures.Picture(axes.figure, " ".join(words))


@figures.drawn
def stages_plot(stages: Mapping[str, Sequence]) -> figures.Picture:
    """What the ranks hold, stage after stage, from left to right; colours follow the first stage.

    `stages` has for each title what each rank holds: tensors, lists of tensors, or None.
    """
    columns = {title: [numbers_of(one) for one in of_ranks] for title, of_ranks in stages.items()}
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
    each = [
        f"rank {rank}: {row_text(old)} before, {row_text(new)} after"
        for rank, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    return f"{title}. {'; '.join(each)}."


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
