"""What a rank holds in a training step, alone, with DDP and sharded: measured bytes by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.recording.memory import MemoryLedger

WIDTH, DEPTH, ROWS = 256, 4, 512  # ROWS is the global batch
PARTS = ("parameters", "gradients", "optimizer", "unsharded", "buckets", "activations")
ALONE, DDP, SHARDED = "one process", "DDP", "fully_shard"


def by_block(model: DigitsMLP) -> nn.Module:
    """The model sharded layer by layer, as chapter 06 does it."""
    for layer in model.hidden:
        fully_shard(layer)
    return fully_shard(model)


WRAPS: dict[str, Callable[[DigitsMLP], nn.Module]] = {
    ALONE: lambda model: model,
    DDP: DistributedDataParallel,
    SHARDED: by_block,
}


def by_part(found: Mapping[str, dict[str, int]]) -> pd.DataFrame:
    """A row for each way of training, a column for each part that any of them holds."""
    table = pd.DataFrame(found).T.rename(columns={"optimizer": "optimizer state"})
    return table.loc[:, table.any()]


def held_in_a_step(
    way: str, formats: Sequence[torch.dtype] = (torch.float32,)
) -> list[dict[str, int]]:
    """A worker: bytes by part in the third step with Adam, under autocast to each of the formats.

    The ranks share a batch of 512 rows. `way` is one of WRAPS.
    """
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    found = []
    for dtype in formats:
        torch.manual_seed(0)
        model = WRAPS[way](DigitsMLP(WIDTH, DEPTH).to(device))
        optimizer = torch.optim.Adam(model.parameters())

        def step(model=model, optimizer=optimizer, dtype=dtype) -> None:
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()

        step()  # Adam makes its state here
        step()  # and DDP its buckets
        with MemoryLedger(model, optimizer) as ledger:
            step()
        found.append({part: getattr(ledger.held, part) for part in PARTS})
        del model, step
    cleanup()
    return found
