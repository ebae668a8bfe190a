"""Train with data parallelism inside one process: one replica of the model on each device.

    python src/ddp_workbook/chapters/data_parallel.py

New since single_process.py: each batch is cut into pieces, and `forward_and_backward` works on all
pieces at once, in the four operations of nn.DataParallel: replicate, scatter, parallel_apply, gather.
Where there are GPUs enough, nn.DataParallel does it; on a CPU it would silently do nothing, so
there a stand-in of this file does, with threads for GPUs. Still one process: `torchrun` would only
repeat it.
"""

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.digits import (
    DigitsDataset,
    DigitsMLP,
    Trained,
    accuracy,
    batches,
    weights_on_cpu,
)

EPOCHS = 5
BATCH_SIZE = 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE = 0.5
SEED = 0
REPLICAS = 2

Piece = tuple[Tensor, Tensor]  # images and labels of one replica's rows


def pick_devices(replicas: int) -> list[torch.device]:
    """One GPU a replica where there are two or more and enough of them, else the CPU each time."""
    if torch.cuda.device_count() >= max(replicas, 2):
        return [torch.device("cuda", index) for index in range(replicas)]
    return [torch.device("cpu")] * replicas


def replicate(model: nn.Module, devices: Sequence[torch.device]) -> list[nn.Module]:
    """The model itself on the first device, a new copy of it on each other one.

    Copied anew each step, because only the model itself was updated by the last one. What a copy
    learns besides gradients (BatchNorm's statistics) is thrown away with it.
    """
    return [model, *(copy.deepcopy(model).to(device) for device in devices[1:])]


def scatter(images: Tensor, labels: Tensor, devices: Sequence[torch.device]) -> list[Piece]:
    """Cut the batch as torch.chunk does: 10 rows on 4 devices are 3, 3, 3, 1; 5 rows are 2, 2, 1."""
    cuts = zip(images.chunk(len(devices)), labels.chunk(len(devices)), devices, strict=False)
    return [(images.to(device), labels.to(device)) for images, labels, device in cuts]


def run_replica(replica: nn.Module, piece: Piece, rows: int) -> Tensor:
    """Forward and backward of one piece; returns its share of the mean loss over all `rows`."""
    images, labels = piece
    # The mean over the piece would give a row of a small piece more weight than one of a large piece.
    share = F.cross_entropy(replica(images), labels, reduction="sum") / rows
    share.backward()
    return share.detach()


def parallel_apply(replicas: list[nn.Module], pieces: list[Piece], rows: int) -> list[Tensor]:
    """Run each piece through its replica in a thread of its own; the first exception is passed on."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // len(pieces)))  # else every replica takes all cores
    try:
        with ThreadPoolExecutor(len(pieces)) as pool:
            return list(pool.map(run_replica, replicas, pieces, repeat(rows)))
    finally:
        torch.set_num_threads(threads)


def gather(replicas: list[nn.Module], shares: list[Tensor]) -> Tensor:
    """Add the replicas' gradients onto the first one's, and their shares to the batch's loss."""
    for first, *others in zip(*(replica.parameters() for replica in replicas), strict=True):
        for other in others:
            if other.grad is not None:  # None where the batch had fewer pieces than replicas
                first.grad += other.grad.to(first.device)
    return sum(share.to(shares[0].device) for share in shares)


def forward_and_backward(
    model: nn.Module, images: Tensor, labels: Tensor, devices: Sequence[torch.device]
) -> Tensor:
    """Add the gradient of the batch's mean loss to the model's .grad; return that loss."""
    if devices[0].type == "cuda":
        return forward_and_backward_on_gpus(model, images, labels, devices)
    replicas = replicate(model, devices)
    pieces = scatter(images, labels, devices)
    shares = parallel_apply(replicas, pieces, len(images))
    return gather(replicas, shares)
