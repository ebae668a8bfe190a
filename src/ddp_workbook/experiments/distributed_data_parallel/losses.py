"""Training for an epoch, with the loss of each rank's rows beside the loss of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import figures
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
from ddp_workbook.figures.palette import INK

LAST_BATCH = "The last batch has five rows."


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


@figures.drawn
def own_losses(losses: pd.DataFrame) -> figures.Picture:
    """A line for each rank's own rows, in its colour, and a black one for the whole batch.

    `losses` is what `side_by_side` returns.
    """
    unit, about = "mean loss over the rows", "Loss of each rank's own rows and of the whole batch"
    picture = figures.lines(losses, unit, about, by="rank")
    picture.alt += " The ranks' lines cross; that of the batch lies between. " + LAST_BATCH
    picture.axes.annotate(
        LAST_BATCH,
        (losses.index[-1], losses.iloc[-1].min()),
        xytext=(-14, 2),
        textcoords="offset points",
        ha="right",
        va="center",
        size=9,
        arrowprops={"arrowstyle": "->", "color": INK},
    )
    return picture
