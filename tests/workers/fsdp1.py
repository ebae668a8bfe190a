"""A worker that trains with FSDP1, as older programs do."""

import torch
import torch.distributed as dist

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer, batches
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded import LEARNING_RATE, MAX_NORM, SEED
from ddp_workbook.experiments.fully_sharded import fsdp1


def with_fsdp1(batch_size: int = 300) -> list[float]:
    """The losses of an epoch."""
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    torch.manual_seed(SEED)
    sharded = fsdp1.shard_by_block(DigitsTransformer().to(device), device)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    losses = []
    for images, labels in batches(DigitsDataset(), batch_size, epoch=0):
        optimizer.zero_grad()
        loss = forward_and_backward(sharded, images[mine], labels[mine], len(images))
        sharded.clip_grad_norm_(MAX_NORM)
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item())
    cleanup()
    return losses
