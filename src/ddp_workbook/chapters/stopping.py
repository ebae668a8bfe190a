"""Hears the signals by which a cluster or torchrun asks a training to stop."""

import os
import signal

import torch
import torch.distributed as dist

STARTED_BY = os.getppid()  # torchrun, say


def listen() -> list[int]:
    """A list that gets the signals by which this process is told to stop."""
    heard: list[int] = []
    for one in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(one, lambda number, _: heard.append(number))
    return heard


def told_to_stop(heard: list[int], device: torch.device) -> bool:
    """True on all ranks if one of them has heard a signal; all must ask after the same step.

    Nor do they go on if what started them was killed: it may start others, for the same work.
    """
    told = torch.tensor(float(len(heard) + (os.getppid() != STARTED_BY)), device=device)
    dist.all_reduce(told)
    return told.item() > 0
