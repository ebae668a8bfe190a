"""Workers that a player runs."""

import os
import signal
import time

import torch
import torch.distributed as dist


def total(mine: int = 1) -> float:
    """The sum over all ranks."""
    dist.init_process_group("gloo")
    x = torch.tensor([float(mine)])
    dist.all_reduce(x)
    return x.item()


def sleeps(seconds: float) -> float:
    """Long enough to be overtaken; its file says that it ran."""
    time.sleep(seconds)
    return seconds


def write_note(folder: str, mine: int, seconds: float) -> int:
    """Says in a file that it has begun."""
    with open(os.path.join(folder, f"{mine}-{os.environ['RANK']}"), "x"):
        time.sleep(seconds)
    return mine


def goes_wrong(how: str) -> float:
    """As readers' workers do."""
    if how == "raises":
        raise ValueError("no such thing")
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            dist.barrier()
        else:
            dist.recv(torch.zeros(1), src=0)
    if how == "floods":
        print("a line of text\n" * 80_000)
    return float("nan") if how == "nan" else 1.0
