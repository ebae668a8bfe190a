"""Trainings for tests/manyranks/recording/test_timeline.py."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, BATCH, STEPS = 512, 64, 8
SLEEP = 0.15  # seconds by which a rank is made late


class Rows(Dataset):
    """Random rows; the first of each batch takes so long."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            time.sleep(self.seconds)
        return torch.full((WIDTH,), index / (BATCH * STEPS))


def train(late: str = "", who: int = 1) -> int:
    """Some steps with DDP; rank `who` is late in its "loader" or in its "code"."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mine = dist.get_rank() == who
    model = DistributedDataParallel(
        nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6))), bucket_cap_mb=1
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Rows(SLEEP if mine and late == "loader" else 0), batch_size=BATCH)
    for rows in loader:
        if mine and late == "code":
            time.sleep(SLEEP)
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return dist.get_rank()


def sums() -> float:
    """No optimizer: one step."""
    dist.init_process_group("gloo")
    total = torch.ones(10)
    dist.all_reduce(total)
    return total.sum().item()


def nothing() -> None:
    """Not even a tensor."""


def fails_in_the_second_step() -> None:
    """An error after a step."""
    dist.init_process_group("gloo")
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    raise ValueError("the second step")


if __name__ == "__main__":
    train(*sys.argv[1:])
