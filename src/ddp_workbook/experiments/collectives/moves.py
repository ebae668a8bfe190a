"""Chapter 05: what ranks hold before and after each collective, and between the halves of one."""

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.digits import Trained
from ddp_workbook.experiments.collectives import every_call
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.process_group import set_up


def held(*names: str, ranks: int = 4) -> dict[str, list[tuple]]:
    """For each collective and rank: (before, after), from real ranks."""
    return {name: run_ranks(Call(every_call.run, (name,), {}), ranks, quiet=True) for name in names}


def stages(ranks: int = 4) -> dict[str, list]:
    """What each rank holds at the start, after reduce_scatter, and after all_gather."""
    of_ranks = run_ranks(Call(two_halves, (), {}), ranks, quiet=True)
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


def largest_difference(runs: list[Trained], other: Trained) -> float:
    """The largest difference between any weight of any of the runs and the same one of `other`."""
    return max(
        (run.weights[name] - other.weights[name]).abs().max().item()
        for run in runs
        for name in other.weights
    )
