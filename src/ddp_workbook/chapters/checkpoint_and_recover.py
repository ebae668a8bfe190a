"""Train as samplers.py does, save often, and go on from the newest save after any interruption.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/checkpoint_and_recover.py

New since samplers.py: `Checkpointer` saves all that the next step depends on, and loads it again.
Kill a rank and start the command once more with the same --saved: the weights end as they would
have without the kill, equal in every bit. With --max-restarts 3 torchrun starts again by itself. A
SIGTERM or SIGUSR1 to any rank makes all ranks save after the same step, and end.
"""

from collections.abc import Iterator
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from ddp_workbook.chapters.checkpointing import Checkpointer
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, Result, weights_on_cpu
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.samplers import (
    accuracy_over_ranks,
    forward_and_backward,
    loader_of_rank,
    without_padding,
)
from ddp_workbook.chapters.stopping import listen, stop_requested
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0
SAVE_EVERY = 10  # steps from save to save


def rebuild_buckets(ddp: nn.Module, digits: DigitsDataset, device: torch.device) -> None:
    """One backward pass that trains nothing: after its first, DDP puts gradients in another order.

    From three ranks on, the order decides how sums are rounded. A run that goes on from a save must
    not have its first step in the old order, or it would end with other last digits.
    """
    forward_and_backward(ddp.eval(), digits.images[:1].to(device), digits.labels[:1].to(device), 1)
    ddp.train().zero_grad()


def batches_after(done: int, loader: DataLoader, epochs: int) -> Iterator[tuple]:
    """What `without_padding` yields in all epochs, without the first `done` batches."""
    loader.generator = torch.Generator()  # else each epoch draws from the state that is restored
    for epoch in range(done // len(loader), epochs):
        loader.sampler.set_epoch(epoch)  # else every epoch has the order of the first
        yield from islice(without_padding(loader), max(done - epoch * len(loader), 0), None)


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
    saved: str = "",
    every: int = SAVE_EVERY,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    digits = DigitsDataset()
    loader = loader_of_rank(digits, batch_size, device)
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    checkpointer, signals = Checkpointer(saved, model, optimizer), listen()
    rebuild_buckets(ddp, digits, device)
    losses = checkpointer.load().get("losses", [])
    for images, labels, rows in batches_after(len(losses), loader, epochs):
        optimizer.zero_grad()
        images, labels = images.to(device, non_blocking=True), labels.to(device)
        loss = forward_and_backward(ddp, images, labels, rows)
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item())
        stop = stop_requested(signals, device)
        if stop or len(losses) % every == 0:
            checkpointer.save(len(losses), losses=losses)
        if stop:
            break
    right = accuracy_over_ranks(model, loader, device)
    del ddp
    cleanup()
    return Result(losses, right, weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
