"""Mistakes with sharded models: the loop that shows their effect, and those that raise no error."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer, accuracy, batches
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded import (
    BATCH_SIZE,
    LEARNING_RATE,
    MAX_NORM,
    SEED,
    WIDTH,
    shard_by_block,
)
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.recording.collectives import record_collectives

SMALL = {"width": 16, "depth": 2}  # where the message counts, and not the learning


def train_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 20) -> list[float]:
    """The chapter's loop for the first batches; the loss of each step, of the whole batch."""
    device = next(model.parameters()).device
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    losses = []
    for _, (images, labels) in zip(
        range(steps), batches(DigitsDataset(), BATCH_SIZE, epoch=0), strict=False
    ):
        optimizer.zero_grad()
        my_images, my_labels = images[mine].to(device), labels[mine].to(device)
        losses.append(forward_and_backward(model, my_images, my_labels, len(images)))
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    return losses.tolist()


def losses_by_optimizer_order(when: str, steps: int = 20) -> list[float]:
    """A worker: the losses with an optimizer that is made "before" or "after" the sharding."""
    device = setup()
    torch.manual_seed(SEED)
    model = DigitsTransformer(WIDTH, depth=2).to(device)
    if when == "before":
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    shard_by_block(model, device)
    if when == "after":
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = train_steps(model, optimizer, steps)
    cleanup()
    return losses


def compare_optimizer_orders(times: Sequence[str], ranks: int = 2) -> pd.DataFrame:
    """A row for each step, a column for each of `times`, which are "before" and "after"."""
    losses = {when: launch(losses_by_optimizer_order, when, ranks=ranks)[0] for when in times}
    return pd.DataFrame(losses).rename_axis("step")


@figures.house_style
def losses_plot(losses: pd.DataFrame) -> figures.Picture:
    """A line for each column of `losses`, which says when the optimizer was made."""

    lines = losses.rename(columns="optimizer made {} sharding".format)
    picture = figures.lines(lines, "loss", "Loss against step")
    picture.axes.xaxis.set_major_locator(figures.MaxNLocator(integer=True))
    words = [
        f"with the optimizer made {when} sharding, it is {line.iloc[0]:.2f} in the first step and "
        f"{line.iloc[-1]:.2f} in the last, and lies between {line.min():.2f} and {line.max():.2f}"
        for when, line in losses.items()
    ]
    picture.alt = f"Loss against step: {'; '.join(words)}."
    return picture


# Trained weights on rank 0 alone


def accuracy_when_rank_0_loads(weights: dict[str, Tensor]) -> dict[str, float]:
    """A worker: the accuracy when rank 0 alone loads `weights`, for three ways to go on.

    "DDP" and "fully_shard" wrap the model; "fully_shard, from rank 0" then has rank 0's weights
    sent to the shards.
    """
    device, right = setup(), {}
    for way in ("DDP", "fully_shard", "fully_shard, from rank 0"):
        torch.manual_seed(dist.get_rank())  # each rank begins with numbers of its own
        model = DigitsTransformer().to(device)
        if dist.get_rank() == 0:
            model.load_state_dict(weights)
        model = DistributedDataParallel(model) if way == "DDP" else shard_by_block(model, device)
        if way == "fully_shard, from rank 0":
            send_from_rank_0(model, weights)
        right[way] = accuracy(model, DigitsDataset())
        del model  # before its group: whoever frees a gloo group last can hang (torch 2.13)
    cleanup()
    return right


def send_from_rank_0(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Fill the shards of a sharded model from rank 0's `weights`; every rank must call this."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    # A new dict: the call puts DTensors into it.
    set_model_state_dict(model, dict(weights) if dist.get_rank() == 0 else {}, options=options)


# Gradients


def clip_own_shards(model: nn.Module, max_norm: float) -> float:
    """The mistake: each rank clips its shards by their own norm, which this returns."""
    shards = [parameter.grad.to_local() for parameter in model.parameters()]
    norm = torch.stack([shard.square().sum() for shard in shards]).sum().sqrt()
    for shard in shards:
        shard *= (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return norm.item()


def gradient_errors(rows: int) -> dict[str, float]:
    """A worker: how far a gradient of a batch of `rows` is off, relative to one process.

    "mean of own rows" takes each rank's mean loss, "as in the chapter" its share of the batch's.
    """
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:rows].to(device), digits.labels[:rows].to(device)
    mine, off = slice(dist.get_rank(), None, dist.get_world_size()), {}
    torch.manual_seed(SEED)
    alone = DigitsTransformer(**SMALL).to(device)
    F.cross_entropy(alone(images), labels).backward()
    whole = torch.cat([parameter.grad.flatten() for parameter in alone.parameters()])
    for way in ("mean of own rows", "as in the chapter"):
        torch.manual_seed(SEED)
        model = shard_by_block(DigitsTransformer(**SMALL).to(device), device)
        if way == "as in the chapter":
            forward_and_backward(model, images[mine], labels[mine], rows)
        else:
            F.cross_entropy(model(images[mine]), labels[mine]).backward()
        gradient = torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])
        off[way] = ((gradient - whole).norm() / whole.norm()).item()
    cleanup()
    return off


def gradient_error_by_rows(rows: Sequence[int], ranks: int = 2) -> pd.DataFrame:
    """How far rank 0's gradient is off: a row for each way, a column for each number of rows."""
    off = {number: launch(gradient_errors, number, ranks=ranks)[0] for number in rows}
    return pd.DataFrame(off).rename_axis("rows in the batch", axis=1)


# What goes over the wire with a frozen part


def step_with_frozen_part(frozen: str) -> int:
    """A worker: one step with parameters frozen; returns how many of this rank have no gradient.

    `frozen` is "nothing", "first": all that comes before the second block, or "last": all that
    comes after the first one.
    """
    device, digits = setup(), DigitsDataset()
    model = DigitsTransformer(**SMALL).to(device)
    first = ("embedding", "position", "blocks.0.")
    for name, parameter in model.named_parameters():
        if frozen != "nothing":
            parameter.requires_grad_(name.startswith(first) != (frozen == "first"))
    shard_by_block(model, device)
    model(digits.images[:8].to(device)).logsumexp(dim=1).mean().backward()
    dist.barrier()
    return sum(parameter.grad is None for parameter in model.parameters())


def calls_with_frozen_parts(frozen: Sequence[str], ranks: int = 2) -> pd.DataFrame:
    """How often rank 0 calls each collective: a column for each part that is frozen."""
    calls = {}
    for part in frozen:
        wire = record_collectives(step_with_frozen_part, part, ranks=ranks).query("rank == 0")
        calls[f"{part} frozen"] = wire["op"].value_counts()
    barrier = "barrier"  # the worker's own, at its end
    return pd.DataFrame(calls).drop(index=barrier).rename_axis(None)
