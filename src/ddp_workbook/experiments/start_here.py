"""Page 00: what four processes did with one program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from ddp_workbook import figures

PROGRAM = "x = rank + 1\nall_reduce(x)\nx"
LANE, TOP, BOX = 0.52, 0.5, 0.4  # inches
COLUMNS = {  # heading: left edge, width
    "one program": (0.1, 1.55),
    "one process for each rank": (2.35, 2.3),
    "one sum": (5.35, 1.35),
    "afterwards": (7.35, 0.95),
}


class Held(NamedTuple):
    """What one rank held: before and after the sum, and the number of its process."""

    process: int
    before: float
    after: float


def one_sum() -> Held:
    """Each rank begins with its rank plus one; afterwards all have the sum."""
    dist.init_process_group("gloo")  # x is on the CPU, also where each rank has a GPU
    x = torch.tensor(dist.get_rank() + 1.0)
    before = x.item()
    dist.all_reduce(x)
    return Held(os.getpid(), before, x.item())


@figures.drawn
def one_sum_plot(of_ranks: Sequence[Held]) -> figures.Picture:
    """From left to right: the program, each rank with its value, the sum, the values afterwards."""
    tall = len(of_ranks) * LANE - (LANE - BOX)
    middle = TOP + tall / 2
    axes = figures.sheet(figures.WIDTH, TOP + len(of_ranks) * LANE + 0.1)
    for heading, (left, width) in COLUMNS.items():
        axes.text(left + width / 2, 0.25, heading, ha="center", va="center", weight="bold")
    (code, code_wide), (rank_at, rank_wide), (sum_at, sum_wide), (last, last_wide) = (
        COLUMNS.values()
    )
    figures.box(axes, (code, middle - 0.5), (code_wide, 1), PROGRAM, family="DejaVu Sans Mono")
    terms = " + ".join(f"{held.before:g}" for held in of_ranks)
    figures.box(axes, (sum_at, TOP), (sum_wide, tall), f"all_reduce\n\n{terms}")
    for rank, held in enumerate(of_ranks):
        top = TOP + rank * LANE
        y = top + BOX / 2
        words = f"rank {rank}, process {held.process}: x = {held.before:g}"
        figures.box(axes, (rank_at, top), (rank_wide, BOX), words, rank)
        figures.box(axes, (last, top), (last_wide, BOX), f"x = {held.after:g}", rank)
        figures.arrow(axes, (code + code_wide, middle), (rank_at, y))
        figures.arrow(axes, (rank_at + rank_wide, y), (sum_at, y), rank)
        figures.arrow(axes, (sum_at + sum_wide, y), (last, y), rank)
    before = ", ".join(f"{held.before:g}" for held in of_ranks)
    after = ", ".join(f"{held.after:g}" for held in of_ranks)
    processes = ", ".join(str(held.process) for held in of_ranks)
    return figures.Picture(
        axes.figure,
        f"One program runs in {len(of_ranks)} processes, numbered {processes}. Ranks 0 to "
        f"{len(of_ranks) - 1} begin with {before}. all_reduce adds these up. Afterwards the ranks "
        f"have {after}.",
    )
