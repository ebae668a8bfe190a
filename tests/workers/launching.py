"""Small workers, well-behaved and not, for the tests of `launch`."""

import os
import time

import torch
import torch.distributed as dist


def all_reduce() -> float:
    dist.init_process_group("gloo")
    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x)
    return x.item()


def raise_on(bad: int):
    dist.init_process_group("gloo")
    if dist.get_rank() == bad:
        raise ValueError(f"no such digit on rank {bad}")
    dist.barrier()


def exit_on(bad: int, code: int):
    dist.init_process_group("gloo")
    if dist.get_rank() == bad:
        os._exit(code)
    dist.barrier()


def skip_all_reduce(bad: int):
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if dist.get_rank() != bad:
        dist.all_reduce(x)
    else:
        time.sleep(3600)


def loop_for_ever():
    n = 0
    while True:
        n += 1
