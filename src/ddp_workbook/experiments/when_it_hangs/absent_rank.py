"""Three ranks average a loss, and rank 2 never comes: it evaluates instead.

The page shows where each rank stands, so the lines of this file are what its stacks name.
"""

import time

import torch
import torch.distributed as dist


def average(loss: float) -> float:
    """The mean over the ranks."""
    total = torch.tensor([loss])
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def evaluate(seconds: float) -> None:
    """Stands for whatever keeps one rank from coming."""
    time.sleep(seconds)


def step(seconds: float) -> None:
    """What each rank does."""
    if dist.get_rank() == 2:
        evaluate(seconds)
    else:
        average(loss=1.0)
