"""Workers for the tests with real kernels; those that do not end leave their pids in files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def total() -> int:
    dist.init_process_group("gloo")
    x = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(x)
    return x.item()


def fails():
    if os.environ["RANK"] == "1":
        raise ValueError("no such digit")
    time.sleep(60)


def deadlock(folder: str):
    """Rank 0 in a collective, the others not; each with a process in a session of its own."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(sleep, start_new_session=True)
    Path(folder, f"session{rank}").write_text(str(child.pid))
    Path(folder, f"pid{rank}").write_text(str(os.getpid()))
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    dist.barrier()


def leaves_a_session(folder: str):
    """A process in a session of its own, which the rank does not end."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(sleep, start_new_session=True)
    Path(folder, f"session{os.environ['RANK']}").write_text(str(child.pid))


def c_loop(folder: str):
    Path(folder, f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
    return sum(range(10**12))
