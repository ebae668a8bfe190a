"""Train in one process on several devices: a replica of the model and a piece of the batch on each.

    python src/ddp_workbook/chapters/data_parallel.py

New since single_process.py: `forward_and_backward` does the four operations of nn.DataParallel:
scatter, replicate, parallel_apply, gather. With two GPUs or more, nn.DataParallel itself does them.
On a CPU it would do nothing, so threads play the GPUs. It is one process on one machine: `torchrun`
would only repeat it.
"""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsMLP,
    Result,
    accuracy,
    batches,
    weights_on_cpu,
)
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED, REPLICAS = 0, 2

Piece = tuple[Tensor, Tensor]  # images and labels of the same rows


def pick_devices(replicas: int) -> list[torch.device]:
    """A GPU for each replica if there are two or more and enough; otherwise the CPU for all."""
    if torch.cuda.device_count() >= max(2, replicas):
        return [torch.device("cuda", index) for index in range(replicas)]
    return [torch.device("cpu")] * replicas


def replicate(model: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """The model itself for the first device, and a new copy of it for each other device."""
    # New copies in every step: the optimizer changes the model alone, so old copies are stale.
    # Whatever else a copy has changed, such as BatchNorm's running mean, is lost with it.
    return [model, *(copy.deepcopy(model).to(device) for device in devices[1:])]


def scatter(images: Tensor, labels: Tensor, devices: Sequence[torch.device]) -> list[Piece]:
    """Cut the batch as torch.chunk does: 10 rows for 4 devices are 3, 3, 3, 1; 5 rows 2, 2, 1."""
    pieces = zip(images.chunk(len(devices)), labels.chunk(len(devices)), devices, strict=False)
    return [(images.to(device), labels.to(device)) for images, labels, device in pieces]


def run_replica(replica: nn.Module, images: Tensor, labels: Tensor, rows: int) -> Tensor:
    """Forward and backward of one piece; its share of the mean loss over the batch's `rows`."""
    # Not the mean over the piece: with pieces of 3, 3, 3 and 1 rows the last row would count three
    # times as much as any other.
    share = F.cross_entropy(replica(images), labels, reduction="sum") / rows
    share.backward()
    return share.detach()


def parallel_apply(replicas: list[nn.Module], pieces: list[Piece], rows: int) -> list[Tensor]:
    """Run all replicas, each in its own thread; their shares in order. Exceptions are passed on."""
    with ExitStack() as afterwards:
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        threads = max(1, torch.get_num_threads() // len(pieces))  # else each would use all
        # A pool each: a common one may give a second piece to a thread that has done its first.
        start = 1, "", torch.set_num_threads, (threads,)  # a new thread would use all cores
        pools = [afterwards.enter_context(ThreadPoolExecutor(*start)) for _ in pieces]
        work = zip(pools, replicas, pieces, strict=True)
        jobs = [pool.submit(run_replica, replica, *piece, rows) for pool, replica, piece in work]
        return [job.result() for job in jobs]


def add_gradients(replicas: list[nn.Module]) -> None:
    """Add the gradients of all replicas onto the first one's, which is the model."""
    # nn.DataParallel has no such function: there, the backward of its copying adds them up.
    for first, *copies in zip(*(replica.parameters() for replica in replicas), strict=True):
        for gradient in (p.grad for p in copies if p.grad is not None):
            if first.grad is None:
                first.grad = torch.zeros_like(first)
            first.grad += gradient.to(first.device)


def gather(shares: list[Tensor]) -> Tensor:
    """The batch's mean loss from the replicas' shares, on the first device."""
    # nn.DataParallel gathers the outputs of all rows instead, and the loss is computed afterwards.
    return sum(share.to(shares[0].device) for share in shares)


def forward_and_backward(
    model: nn.Module, images: Tensor, labels: Tensor, devices: Sequence[torch.device]
) -> Tensor:
    """Add the gradient of the batch's mean loss to the model's .grad; return that loss."""
    if devices[0].type == "cuda":
        # Wrapped here and not in `train`, so that no weight is ever called `module.…`.
        outputs = nn.DataParallel(model, list(devices))(images)  # gathered on the first GPU
        loss = F.cross_entropy(outputs, labels.to(outputs.device))
        loss.backward()
        return loss.detach()
    pieces = scatter(images, labels, devices)
    replicas = replicate(model, devices[: len(pieces)])  # a small batch leaves devices idle
    shares = parallel_apply(replicas, pieces, len(images))
    add_gradients(replicas)
    return gather(shares)


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
    replicas: int = REPLICAS,
) -> Result:
    """Train on `replicas` devices of this process."""
    devices = pick_devices(replicas)
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(devices[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            loss = forward_and_backward(model, images, labels, devices)
            optimizer.step()
            losses.append(loss)
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
