"""What DDP sends in three steps, line by line."""

import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.recording.collectives import record_collectives


def three_steps() -> None:
    """Three training steps of a model with four layers, and nothing else."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:64].to(device), digits.labels[:64].to(device)
    model = DigitsMLP(depth=3).to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        scores = ddp(images)
        F.cross_entropy(scores, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()  # no rank leaves early


def sent_by_rank_0(worker: Callable[..., Any], ranks: int = 2, **arguments: Any) -> pd.DataFrame:
    """Rank 0's row of each call that `worker` makes, with the text of the line behind it.

    Columns: seq (the index), line, op, peer, dtype, bytes.
    """
    wire = record_collectives(worker, ranks=ranks, **arguments).query("rank == 0")
    with open(inspect.getsourcefile(worker) or "", encoding="utf-8") as file:
        lines = ["", *(line.partition("  #")[0].strip() for line in file)]
    numbers = wire["line"].str.rpartition(":")[2].astype(int)
    columns = ["seq", "line", "op", "peer", "dtype", "bytes"]
    return wire.assign(line=[lines[number] for number in numbers])[columns].set_index("seq")
