"""Hears the signals by which a cluster or torchrun asks a training to stop."""

import os
import signal

import torch
import torch.distributed as dist

PARENT_PID = os.getppid()  # torchrun, say


def listen() -> list[int]:
    """A list that gets the signals by which this process is told to stop."""
    signals: list[int] = []
    for signum in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, lambda number, _: signals.append(number))
    return signals


def stop_requested(signals: list[int], device: torch.device) -> bool:
    """True on all ranks if one of them has heard a signal; all must ask after the same step.

    Nor do they go on if what started them was killed: it may start others, for the same work.
    """
    count = torch.tensor(float(len(signals) + (os.getppid() != PARENT_PID)), device=device)
    dist.all_reduce(count)
    return count.item() > 0
