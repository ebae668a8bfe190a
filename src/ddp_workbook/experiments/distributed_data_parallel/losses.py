"""Training for an epoch, with the loss of each rank's rows beside the loss of the whole batch."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import (
    BATCH_SIZE,
    LEARNING_RATE,
    MOMENTUM,
    SEED,
    cleanup,
    forward_and_backward,
    setup,
)
from ddp_workbook.digits import DigitsDataset, DigitsMLP, batches


class Losses(NamedTuple):
    """For each step, a mean loss."""

    own: list[float]  # over this rank's rows
    batch: list[float]  # over the rows of all ranks


def one_epoch() -> Losses:
    """The chapter's training for one epoch."""
    device, shares, own = setup(), [], []
    torch.manual_seed(SEED)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for batch in batches(DigitsDataset(), BATCH_SIZE, epoch=0):
        images, labels = (part[dist.get_rank() :: dist.get_world_size()] for part in batch)
        optimizer.zero_grad()
        share = forward_and_backward(ddp, images.to(device), labels.to(device), len(batch[0]))
        optimizer.step()
        shares.append(share)
        own.append(share.item() * len(batch[0]) / len(images))
    dist.all_reduce(whole := torch.stack(shares))  # once, after the loop
    del ddp
    cleanup()
    return Losses(own, whole.tolist())


def side_by_side(of_ranks: Sequence[Losses]) -> pd.DataFrame:
    """A row for each step: the loss of each rank's rows, and that of the batch."""
    columns = {f"rank {rank}": losses.own for rank, losses in enumerate(of_ranks)}
    return pd.DataFrame(columns | {"whole batch": of_ranks[0].batch}).rename_axis("step")
