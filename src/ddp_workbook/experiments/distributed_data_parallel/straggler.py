"""Who waits for whom: one rank is late in one part of its program, and every rank has a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.timing import synchronise

LATE = 0.05  # seconds
STEPS = 4


class Part(NamedTuple):
    """A part of a rank's program; start and end in milliseconds since all ranks were ready."""

    name: str
    start: float
    end: float


def timed_steps(late: str = "nothing", who: int = 1) -> list[Part]:
    """Constructor, then forward, backward and step in turns; rank `who` is late in `late`."""
    device = setup()
    images, model = DigitsDataset().images[:64].to(device), DigitsMLP().to(device)
    sleeps, parts = dist.get_rank() == who, []
    dist.barrier()
    began = time.perf_counter()

    def timed(name: str, work: Callable):
        start = time.perf_counter()
        if name == late and sleeps:
            time.sleep(LATE)
        result = work()
        synchronise()
        parts.append(Part(name, 1e3 * (start - began), 1e3 * (time.perf_counter() - began)))
        return result

    ddp = timed("constructor", lambda: DistributedDataParallel(model))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for _ in range(STEPS):
        loss = timed("forward", lambda: ddp(images).logsumexp(dim=1).mean())
        timed("backward", loss.backward)
        timed("step", optimizer.step)
        optimizer.zero_grad()
    dist.barrier()
    return parts


def spent(parts: Sequence[Part]) -> dict[str, float]:
    """Milliseconds in each kind of part, all of them together."""
    total: dict[str, float] = {}
    for name, start, end in parts:
        total[name] = total.get(name, 0.0) + end - start
    return total


def waits_of_rank_0(late_parts: Sequence[str]) -> pd.DataFrame:
    """Milliseconds that rank 0 spends in its parts (columns) while rank 1 is late (rows)."""
    rows = {late: spent(launch(timed_steps, late=late, ranks=2)[0]) for late in late_parts}
    return pd.DataFrame(rows).T.round().astype(int).rename_axis("rank 1 is late in")


@figures.drawn
def timeline(of_ranks: Sequence[Sequence[Part]]) -> figures.Picture:
    """A lane a rank: the parts of its program."""
    rows = [(f"rank {rank}", *part) for rank, parts in enumerate(of_ranks) for part in parts]
    events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
    return figures.lanes(events, "milliseconds since both were ready", "Four steps of each rank")
