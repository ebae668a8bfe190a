"""How long a collective of a given size takes, in the ranks; `alpha_beta.py` fits and draws it.

Runs in ranks, so it imports no more than they need.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from ddp_workbook.notebook.cells import start
from ddp_workbook.recording.timing import synchronise

# Not reduce_scatter: gloo builds it from whole all-reduces, so its time would teach a wrong thing.
OPS = ("all_reduce", "all_gather", "broadcast")


def seconds_of(ops: list[str], sizes: list[int], rounds: int) -> list:
    """In a rank: seconds as [round][op][size]; the warm-up round comes first."""
    device = start(bare=False)
    steps = [[_call(op, size, device) for size in sizes] for op in ops]
    return [[[_seconds(step, device) for step in row] for row in steps] for _ in range(rounds + 1)]


def _call(op: str, size: int, device: torch.device) -> Callable[[], object]:
    whole = torch.ones(size // 4, device=device)
    if op == "all_gather":
        part = torch.ones(len(whole) // dist.get_world_size(), device=device)
        # torch 2.13 renamed it, and warns of the old name
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(whole, part)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, src=0)
    return lambda: dist.all_reduce(whole, dist.ReduceOp.MAX)  # a sum would grow to infinity


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    dist.barrier()  # together, or who came early would count its waiting
    synchronise(device)
    begun = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - begun
