"""Ranks and one log file: all of them write it, or rank 0 alone."""

import tempfile
from pathlib import Path

import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.launcher.launch import launch

STEPS = 3


def all_ranks_log(path: str) -> None:
    """Every rank opens the file and writes a line in each step."""
    setup()
    with open(path, "w") as log:
        for step in range(STEPS):
            print(line(step, dist.get_rank()), file=log, flush=True)
            dist.barrier()


def rank_0_logs(path: str) -> str:
    """Rank 0 writes the file; what every rank reads once it is complete."""
    setup()
    if dist.get_rank() == 0:
        with open(path, "w") as log:
            print("written once", file=log)
    dist.barrier()  # outside of the if: all ranks must come
    return Path(path).read_text()


def line(step: int, rank: int) -> str:
    """What a rank writes in a step; some losses have more digits than others."""
    return f"step {step}: loss {2.3 / (rank + 1)} on rank {rank}"


def logged_by(worker, ranks: int = 4) -> str:
    """The file that the worker has written on that many ranks, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        launch(worker, str(path), ranks=ranks)
        return path.read_text()
