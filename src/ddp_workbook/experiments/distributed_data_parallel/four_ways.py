"""One worker for every way to start it: it finds its place in its environment.

torchrun --standalone --nproc-per-node 2 four_ways.py FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from ddp_workbook.chapters.distributed_data_parallel import train


def worker(folder: str) -> None:
    """Train for one short epoch, and leave a report in `folder`."""
    began = time.time()
    trained = train(epochs=1, batch_size=256)
    report = {
        "accuracy": trained.accuracy,
        "threads": torch.get_num_threads(),
        "began": began,  # seconds, of the system's clock
        "ended": time.time(),
    }
    Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(report))


def as_rank(rank: int, world_size: int, port: int, folder: str) -> None:
    """The worker in a process that nobody has told who it is: do what torchrun would do."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    worker(folder)
    sys.stdout.flush()
    os._exit(0)  # at once: gloo can abort while Python shuts down (torch 2.13)


if __name__ == "__main__":  # under torchrun, which has told it
    worker(sys.argv[1])
    os._exit(0)
