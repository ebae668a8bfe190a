"""An all-reduce of a few ranks, timed. Each rank imports this file: it imports little itself."""

import time

import torch
import torch.distributed as dist

from manyranks.launcher.launch import launch
from manyranks.launcher.process_group import set_up


def time_all_reduce(ranks: int) -> float:
    """Seconds of one launch; raises ArithmeticError unless all ranks have the right sum."""
    start = time.perf_counter()
    sums = launch(all_reduce_once, ranks=ranks)
    if set(sums) != {ranks * (ranks + 1) / 2}:
        raise ArithmeticError(f"an all-reduce of 1 to {ranks} gave {sums}")
    return time.perf_counter() - start


def all_reduce_once() -> float:
    """In a rank: the sum of 1 to world size, by one all-reduce."""
    device = set_up(bare=False)
    number = torch.tensor([dist.get_rank() + 1.0], device=device)
    dist.all_reduce(number)
    return number.item()
