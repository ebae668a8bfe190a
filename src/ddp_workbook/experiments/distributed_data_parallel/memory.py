"""What a rank holds in a training step with DDP, against one process: measured bytes by part."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.memory import MemoryLedger

WIDTH, DEPTH, ROWS = 256, 4, 512  # ROWS is the global batch
PARTS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "buckets": "buckets",
    "activations": "activations",
}


def held_by_one_rank(ranks: Sequence[int] = (2, 4)) -> pd.DataFrame:
    """Bytes by part (columns): of one process, and of rank 0 of each number of ranks with DDP."""
    found = {"one process": launch(held_in_a_step, False, ranks=1)[0]}
    for count in ranks:
        found[f"each of {count} ranks"] = launch(held_in_a_step, True, ranks=count)[0]
    return pd.DataFrame(found).T


@figures.drawn
def held(table: pd.DataFrame) -> figures.Picture:
    """A bar for each way of training, stacked by part; `table` is from `held_by_one_rank`."""
    unit, about = "MB that a rank holds in a step", "What a rank holds with DDP"
    return figures.bars(table / 1e6, unit, about, totals="{:.2f}".format)


def held_in_a_step(wrapped: bool) -> dict[str, int]:
    """Bytes by part in the third step with Adam; the ranks share a batch of 512 rows."""
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    torch.manual_seed(0)
    inner = DigitsMLP(WIDTH, DEPTH).to(device)
    model = DistributedDataParallel(inner) if wrapped else inner
    optimizer = torch.optim.Adam(inner.parameters())
    for _ in range(2):  # Adam makes its state in the first step, DDP its buckets in the second
        step(model, optimizer, images, labels)
    with MemoryLedger(model, optimizer) as ledger:
        step(model, optimizer, images, labels)
    del model
    cleanup()
    return {name: getattr(ledger.held, part) for part, name in PARTS.items()}


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> None:
    """One training step; under one process the whole batch is this rank's."""
    optimizer.zero_grad()
    forward_and_backward(model, images, labels, ROWS)
    optimizer.step()
