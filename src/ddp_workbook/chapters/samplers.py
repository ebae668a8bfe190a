"""Train with a DataLoader on each rank; its DistributedSampler picks the rank's own samples.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/samplers.py

New since distributed_data_parallel.py: no rank makes the whole batch any more. `loader_of_rank`
loads this rank's share, `without_padding` drops the samples that the sampler has repeated to make
the shares equal, and `accuracy_over_ranks` divides the evaluation among the ranks, too.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, Result, weights_on_cpu
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0


def loader_of_rank(digits: DigitsDataset, batch_size: int, device: torch.device) -> DataLoader:
    """Loads this rank's share of batches of `batch_size`, which the number of ranks must divide."""
    ranks = dist.get_world_size()
    if batch_size % ranks:
        raise ValueError(f"batch_size={batch_size}: {ranks} ranks need a multiple of {ranks}.")
    sampler = DistributedSampler(digits, seed=SEED)  # it shuffles; the same seed on all ranks
    pin = device.type == "cuda"  # and no DataLoader workers: the data are in memory
    return DataLoader(digits, batch_size // ranks, sampler=sampler, pin_memory=pin)


def without_padding(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor, int]]:
    """This rank's part of each batch, and the whole batch's size; each sample once an epoch."""
    rank, ranks, remaining = dist.get_rank(), dist.get_world_size(), len(loader.dataset)
    for images, labels in loader:
        samples = min(remaining, loader.batch_size * ranks)
        mine = len(range(rank, samples, ranks))  # what comes after these is padding
        yield images[:mine], labels[:mine], samples  # even none: DDP waits for every rank
        remaining -= samples


def forward_and_backward(model: nn.Module, images: Tensor, labels: Tensor, rows: int) -> Tensor:
    """Forward and backward of this rank's part of a batch of `rows`; its share of the mean loss.

    Each parameter's .grad is then, on every rank, the gradient of the whole batch's mean loss.
    """
    share = F.cross_entropy(model(images), labels, reduction="sum") / rows
    (share * dist.get_world_size()).backward()
    return share.detach()


@torch.no_grad()
def accuracy_over_ranks(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Share of the loader's samples that `model` gets right; each rank looks at its own."""
    digits, mine = loader.dataset, torch.tensor(list(loader.sampler))
    right = torch.zeros(len(digits), device=device)  # a place for each sample, filled by its rank
    guesses = model.eval()(digits.images[mine].to(device)).argmax(dim=1)
    right[mine.to(device)] = (guesses == digits.labels[mine].to(device)).float()
    dist.all_reduce(right, dist.ReduceOp.MAX)  # a sample that two ranks have seen counts once
    return right.mean().item()


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
        loader.sampler.set_epoch(epoch)  # else every epoch has the order of the first
        for images, labels, rows in without_padding(loader):
            optimizer.zero_grad()
            images, labels = images.to(device, non_blocking=True), labels.to(device)
            loss = forward_and_backward(ddp, images, labels, rows)
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    right = accuracy_over_ranks(model, loader, device)
    del ddp
    cleanup()
    return Result([loss.item() for loss in losses], right, weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
