"""Train with lines that notice mistakes which raise no error: wrong rows, gradients or weights.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/when_it_hangs.py

New since samplers.py: the functions `assert_…`, which compare the ranks. Take them along: they need
nothing of this workbook.
"""

import zlib
from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, Result, weights_on_cpu
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.samplers import (
    BATCH_SIZE,
    DEPTH,
    EPOCHS,
    LEARNING_RATE,
    MOMENTUM,
    SEED,
    WIDTH,
    accuracy_over_ranks,
    forward_and_backward,
    loader_of_rank,
    without_padding,
)
from ddp_workbook.chapters.training_run import run


def checksum(tensors: Iterable[Tensor]) -> int:
    """One number for the bits of some tensors. It copies tensors on a GPU to the CPU."""
    total = 0
    for tensor in tensors:
        bits = tensor.detach().contiguous().cpu().view(-1).view(torch.uint8)
        total = zlib.crc32(bits.numpy(), total)
    return total


def gather_from_all_ranks(number: int, device: torch.device) -> list[int]:
    """Each rank's number, in rank order, on every rank: one all_gather of 8 bytes."""
    own = torch.tensor([number], device=device)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [value.item() for value in everyone]


def assert_same_on_all_ranks(model: nn.Module) -> None:
    """Raise an error on every rank unless all ranks hold the same parameters and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    sums = gather_from_all_ranks(checksum(tensors), tensors[0].device)
    others = [rank for rank, total in enumerate(sums) if total != sums[0]]
    if others:
        raise AssertionError(f"The replicas of ranks {others} are not that of rank 0.")


def assert_own_rows(batch: Tensor) -> None:
    """Raise an error on every rank if two ranks have the same batch."""
    sums = gather_from_all_ranks(checksum([batch]), batch.device)
    if len(set(sums)) < len(sums):
        first = {total: rank for rank, total in reversed([*enumerate(sums)])}
        pairs = [(first[total], rank) for rank, total in enumerate(sums) if first[total] != rank]
        raise AssertionError(f"Pairs of ranks with the same rows: {pairs}.")


def gradients(model: nn.Module) -> list[Tensor]:
    """A copy of each gradient; zeros where this rank did not use a parameter. No frozen ones."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]


def assert_gradient_is_the_mean(ddp: DistributedDataParallel, backward: Callable) -> None:
    """Raise an error on every rank unless `backward()` leaves the mean over the ranks in .grad.

    `backward` runs forward and backward of one batch, twice: so call this once, in the first step.
    Dropout must be off, or draw the same numbers both times; BatchNorm's statistics move twice. It
    leaves no gradients.
    """
    with ddp.no_sync():
        backward()
    means = gradients(ddp)
    for mean in means:
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
    ddp.zero_grad()
    backward()
    pairs = zip(gradients(ddp), means, strict=True)
    close = all(torch.allclose(own, mean, rtol=1e-4, atol=1e-6) for own, mean in pairs)
    ddp.zero_grad()
    wrong = [
        rank for rank, ok in enumerate(gather_from_all_ranks(close, means[0].device)) if not ok
    ]
    if wrong:
        raise AssertionError(f"On ranks {wrong} .grad is not the mean over the ranks.")


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    digits = DigitsDataset()
    loader = loader_of_rank(digits, batch_size, device)
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for step, (images, labels, rows) in enumerate(without_padding(loader)):
            images, labels = images.to(device), labels.to(device)
            if epoch == step == 0:
                assert_own_rows(images)
                backward = partial(forward_and_backward, ddp, images, labels, rows)
                assert_gradient_is_the_mean(ddp, backward)
            optimizer.zero_grad()
            losses.append(forward_and_backward(ddp, images, labels, rows))
            optimizer.step()
        assert_same_on_all_ranks(model)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    right = accuracy_over_ranks(model, loader, device)
    del ddp
    cleanup()
    return Result([loss.item() for loss in losses], right, weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
