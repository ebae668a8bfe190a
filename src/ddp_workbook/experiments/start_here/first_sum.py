"""Page 00: what four processes did with one program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

import ddp_workbook
from manyranks import figures

PROGRAM = "x = its number\nall_reduce(x)\nx"
LANE, TOP, BOX = 0.52, 0.5, 0.4  # inches
COLUMNS = {  # heading: left edge, width
    "one program": (0.1, 1.55),
    "one process for each rank": (2.15, 2.3),
    "one sum": (4.95, 1.35),
    "afterwards": (6.8, 1.5),
}


JOINS, LATE, OTHER_CALL, DIES = "joins", "sleeps 2 s", "calls barrier instead", "is killed"
SHAPE = "brings another shape"


class SumResult(NamedTuple):
    """What one rank held before and after the sum, its process, and its seconds in the call."""

    process: int
    before: float
    after: float
    seconds: float


def run_sum(rank_3: str = JOINS, **numbers: float) -> SumResult:
    """Each rank brings a number, `x_0` is rank 0's; afterwards all that join have the sum."""
    dist.init_process_group("gloo")  # x is on the CPU, also where each rank has a GPU
    rank = dist.get_rank()
    x = torch.tensor([float(numbers.get(f"x_{rank}", rank + 1))])
    before = x.item()
    if rank == 3:
        x = misbehave(rank_3, x)
    start = time.perf_counter()
    dist.all_reduce(x)
    return SumResult(os.getpid(), before, x[0].item(), time.perf_counter() - start)


def misbehave(how: str, x: torch.Tensor) -> torch.Tensor:
    """Be late, call something else, be killed, or return another tensor."""
    if how == LATE:
        time.sleep(2)
    if how == OTHER_CALL:
        dist.barrier()
    if how == DIES:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    return torch.cat([x, x]) if how == SHAPE else x


def play_sum() -> ddp_workbook.Play:
    """One sum, played with: what each of four ranks brings, and how rank 3 behaves."""
    sliders = {
        f"x_{rank}": ddp_workbook.slider(f"rank {rank} brings", range(-5, 21), rank + 1)
        for rank in range(4)
    }
    behaves = ddp_workbook.choice("rank 3", (JOINS, LATE, OTHER_CALL, DIES, SHAPE))
    stills: list[Mapping[str, object]] = [
        {"x_3": 20},
        *({"rank_3": how} for how in (LATE, DIES, SHAPE, OTHER_CALL)),
    ]
    return ddp_workbook.play(run_sum, sum_plot, ranks=4, stills=stills, **sliders, rank_3=behaves)


@figures.house_style
def sum_plot(of_ranks: Sequence[SumResult], **_: object) -> figures.Picture:
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
    terms = " + ".join(f"{result.before:g}" for result in of_ranks)
    figures.box(axes, (sum_at, TOP), (sum_wide, tall), f"all_reduce\n\n{terms}")
    for rank, result in enumerate(of_ranks):
        top = TOP + rank * LANE
        y = top + BOX / 2
        words = f"rank {rank}, process {result.process}: x = {result.before:g}"
        figures.box(axes, (rank_at, top), (rank_wide, BOX), words, rank)
        figures.box(
            axes,
            (last, top),
            (last_wide, BOX),
            f"x = {result.after:g} after {result.seconds:.2f} s",
            rank,
        )
        figures.arrow(axes, (code + code_wide, middle), (rank_at, y))
        figures.arrow(axes, (rank_at + rank_wide, y), (sum_at, y), rank)
        figures.arrow(axes, (sum_at + sum_wide, y), (last, y), rank)
    before = ", ".join(f"{result.before:g}" for result in of_ranks)
    after = ", ".join(f"{result.after:g}" for result in of_ranks)
    processes = ", ".join(str(result.process) for result in of_ranks)
    return figures.Picture(
        axes.figure,
        f"One program runs in {len(of_ranks)} processes, numbered {processes}. Ranks 0 to "
        f"{len(of_ranks) - 1} begin with {before}. all_reduce adds these up. Afterwards the ranks "
        f"have {after}. The longest call of all_reduce took "
        f"{max(result.seconds for result in of_ranks):.2f} s, the shortest "
        f"{min(result.seconds for result in of_ranks):.2f} s.",
    )
