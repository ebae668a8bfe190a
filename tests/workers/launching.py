"""Small workers, well-behaved and not, for the tests of `launch`."""

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
