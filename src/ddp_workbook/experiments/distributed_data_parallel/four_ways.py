"""One worker for every way to start it: it finds its place in its environment.

torchrun --standalone --nproc-per-node 2 four_ways.py FOLDER
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, accuracy, batches
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup


def worker(folder: str) -> None:
    """Train for one epoch on all ranks together, and leave a report in `folder`."""
    start_time = time.time()  # seconds, of the system's clock
    right = train()
    report = {"accuracy": right, "threads": torch.get_num_threads()}
    report |= {"began": start_time, "ended": time.time()}
    Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(report))


def train(batch_size: int = 256, learning_rate: float = 0.5) -> float:
    """One epoch with gradients that are added up by hand; the share of digits that are right.

    No DDP and no optimizer: in a fresh Python, both import torch._dynamo, which takes seconds.
    """
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    torch.manual_seed(0)
    model = DigitsMLP().to(device)
    for images, labels in batches(digits, batch_size, epoch=0):
        scores = model(images[mine].to(device))
        loss = F.cross_entropy(scores, labels[mine].to(device), reduction="sum")
        (loss / len(images)).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # adds up the ranks' shares
            parameter.data -= learning_rate * parameter.grad
            parameter.grad = None
    cleanup()
    return accuracy(model, digits)


def as_rank(rank: int, world_size: int, port: int, folder: str) -> None:
    """The worker in a process without RANK and the like: set what torchrun would set."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    worker(folder)
    sys.stdout.flush()
    os._exit(0)  # at once: gloo can abort while Python shuts down (torch 2.13)


if __name__ == "__main__":  # under torchrun, which has set the environment
    worker(sys.argv[1])
    os._exit(0)
