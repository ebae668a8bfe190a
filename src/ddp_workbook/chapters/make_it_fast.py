"""Train as distributed_data_parallel.py does, with a choice of how the gradients are summed.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/make_it_fast.py

New since distributed_data_parallel.py: `RUNGS`, a ladder of ways to do the same step, from one
all-reduce for each parameter to half of the bytes. After the step of any rung, each .grad is the
gradient of the whole batch, on every rank; the rungs differ in how long the network keeps the ranks
waiting. The option --rung one_by_one takes the slowest.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsMLP,
    Result,
    accuracy,
    batches,
    weights_on_cpu,
)
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0
MIB = 2**20
PARTS = 2  # of a batch that is accumulated

# This rank's images and labels, and the rows of all ranks; this rank's share of the mean loss.
Step = Callable[[Tensor, Tensor, int], Tensor]


def one_by_one(gradients: list[Tensor]) -> None:
    """One all-reduce for each gradient, one after the other: each pays the latency."""
    for gradient in gradients:
        dist.all_reduce(gradient)


def in_buckets(gradients: list[Tensor], size: float = MIB) -> None:
    """Vectors of about `size` bytes each, all started before the first is waited for."""
    buckets: list[list[Tensor]] = [[]]
    for gradient in gradients:
        if sum(g.nbytes for g in buckets[-1]) >= size:
            buckets.append([])
        buckets[-1].append(gradient)
    transfers = []
    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        transfers.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, flat, sending in transfers:
        sending.wait()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def flat(gradients: list[Tensor]) -> None:
    """Copy all gradients into one vector, all-reduce it, copy them back: the latency once."""
    in_buckets(gradients, math.inf)


def after_backward(add_up: Callable[[list[Tensor]], None], model: nn.Module) -> Step:
    """Backward first, with an idle network; then `add_up`, with an idle processor."""

    def step(images: Tensor, labels: Tensor, rows: int) -> Tensor:
        share = F.cross_entropy(model(images), labels, reduction="sum") / rows
        share.backward()
        add_up([p.grad for p in reversed([*model.parameters()])])  # backward's own order
        return share.detach()

    return step


def ddp(model: nn.Module, bucket_cap_mb: float = 1, **arguments: bool) -> Step:
    """A bucket is sent as soon as backward has filled it, while backward goes on below."""
    wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb, **arguments)
    return partial(forward_and_backward, wrapped)


def ddp_float16(model: nn.Module, bucket_cap_mb: float = 1) -> Step:
    """Gradients travel as float16, which has 3 digits, and is infinite above 65,504."""
    wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    wrapped.register_comm_hook(dist.group.WORLD, fp16_compress_hook)
    return partial(forward_and_backward, wrapped)


def accumulated(model: nn.Module) -> Step:
    """The batch in parts, one after the other; the gradients travel with the last one only."""
    wrapped = DistributedDataParallel(model, bucket_cap_mb=1)

    def step(images: Tensor, labels: Tensor, rows: int) -> Tensor:
        *first, last = zip(images.chunk(PARTS), labels.chunk(PARTS), strict=True)
        with wrapped.no_sync():  # around forward too: around backward alone it has no effect
            shares = [forward_and_backward(wrapped, *part, rows) for part in first]
        return sum(shares) + forward_and_backward(wrapped, *last, rows)

    return step


RUNGS: dict[str, Callable[[nn.Module], Step]] = {
    "one_by_one": partial(after_backward, one_by_one),
    "flat": partial(after_backward, flat),
    "buckets": partial(after_backward, in_buckets),
    "ddp": ddp,
    "views": partial(ddp, gradient_as_bucket_view=True, static_graph=True),  # fewer copies
    "half_the_bytes": ddp_float16,
    "accumulated": accumulated,
}


def make_step(rung: str, model: nn.Module) -> Step:
    """The step of this rung. Raises ValueError for a name that is not in RUNGS."""
    if rung not in RUNGS:
        raise ValueError(f"rung is {rung!r}, but it must be one of {', '.join(RUNGS)}")
    return RUNGS[rung](model)


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
    rung: str = "ddp",
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())  # a small batch may leave none
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    step = make_step(rung, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = step(my_images, my_labels, len(images))
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)  # adds up the shares; in the loop, each step would wait twice
    del step  # before its group: whoever frees a gloo group last can hang (torch 2.13)
    cleanup()
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
