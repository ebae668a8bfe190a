"""Train in one process on several devices: a replica of the model and a piece of the batch on each.

    python src/ddp_workbook/chapters/data_parallel.py

New since single_process.py: `forward_and_backward` is the four operations of nn.DataParallel:
replicate, scatter, parallel_apply, gather. With two GPUs, nn.DataParallel itself does them. On a
CPU it would do nothing, so threads play the GPUs. Still one process: `torchrun` only repeats it.
"""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.digits import DigitsDataset, DigitsMLP, Trained, accuracy, batches, weights_on_cpu
from ddp_workbook.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED, REPLICAS = 0, 2

Piece = tuple[Tensor, Tensor]  # images and labels of the same rows


def pick_devices(replicas: int) -> list[torch.device]:
    """One GPU for each replica, where there are at least two and enough; else the CPU for all."""
    if torch.cuda.device_count() >= max(2, replicas):
        return [torch.device("cuda", index) for index in range(replicas)]
    return [torch.device("cpu")] * replicas


def replicate(model: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """The model itself for the first device, a new copy of it for each of the others."""
    # New copies every step, because the optimizer changes the model alone and the old are stale.
    # What a copy gathers besides gradients, as BatchNorm its running mean, is thrown away with it.
    return [model, *(copy.deepcopy(model).to(device) for device in devices[1:])]


def scatter(images: Tensor, labels: Tensor, devices: Sequence[torch.device]) -> list[Piece]:
    """Cut the batch as torch.chunk does: 10 rows for 4 devices are 3, 3, 3, 1; 5 rows 2, 2, 1."""
    cut = zip(images.chunk(len(devices)), labels.chunk(len(devices)), devices, strict=False)
    return [(images.to(device), labels.to(device)) for images, labels, device in cut]


def run_replica(replica: nn.Module, images: Tensor, labels: Tensor, rows: int) -> Tensor:
    """Forward and backward of one piece; its share of the mean loss over the batch's `rows`."""
    # Not the mean over the piece: of 3, 3, 3, 1 rows the last would count as much as three others.
    share = F.cross_entropy(replica(images), labels, reduction="sum") / rows
    share.backward()
    return share.detach()


def parallel_apply(replicas: list[nn.Module], pieces: list[Piece], rows: int) -> list[Tensor]:
    """All replicas, each in its own thread; their shares, in order. An exception is passed on."""
    with ExitStack() as afterwards:
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        threads = max(1, torch.get_num_threads() // len(pieces))  # else each takes all
        # A pool for each: one for all gives a second piece to a thread that has finished its first.
        start = 1, "", torch.set_num_threads, (threads,)  # a new thread knows no setting yet
        pools = [afterwards.enter_context(ThreadPoolExecutor(*start)) for _ in pieces]
        work = zip(pools, replicas, pieces, strict=False)  # a small batch leaves replicas without
        jobs = [pool.submit(run_replica, replica, *piece, rows) for pool, replica, piece in work]
        return [job.result() for job in jobs]


def gather(replicas: list[nn.Module], shares: list[Tensor]) -> Tensor:
    """Add all gradients onto the first replica's, which is the model; return the batch's loss."""
    for first, *others in zip(*(replica.parameters() for replica in replicas), strict=True):
        for gradient in (other.grad for other in others if other.grad is not None):
            if first.grad is None:
                first.grad = torch.zeros_like(first)
            first.grad += gradient.to(first.device)
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
    replicas = replicate(model, devices)
    pieces = scatter(images, labels, devices)
    shares = parallel_apply(replicas, pieces, len(images))
    return gather(replicas, shares)


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
    replicas: int = REPLICAS,
) -> Trained:
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
    return Trained([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
