"""Train with a DataLoader in each rank, whose DistributedSampler says which rows are this rank's.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/samplers.py

New since distributed_data_parallel.py: no rank makes the whole batch any more. `loader_of_rank`
loads this rank's share of it, `without_padding` takes out what the sampler has put in to make the
shares equal, and `accuracy_over_ranks` divides the evaluation among the ranks, too.
"""

import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.digits import DigitsDataset, DigitsMLP, Trained, weights_on_cpu

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0
ALONE = {"rank": 0, "world_size": 1, "init_method": "tcp://127.0.0.1:0"}


def setup() -> torch.device:
    """Join the process group; returns this rank's own GPU if all have one, else the CPU."""
    enough = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    gpu = gpu if enough and dist.is_nccl_available() else None
    if gpu:
        torch.cuda.set_device(gpu)
    world = {} if "RANK" in os.environ else ALONE
    dist.init_process_group("nccl" if gpu else "gloo", device_id=gpu, **world)
    return gpu or torch.device("cpu")


def cleanup() -> None:
    """Leave the group when all ranks are done."""
    dist.barrier()
    dist.destroy_process_group()


def loader_of_rank(digits: DigitsDataset, batch_size: int, device: torch.device) -> DataLoader:
    """Loads this rank's share of batches of `batch_size`, which the number of ranks must divide."""
    ranks = dist.get_world_size()
    if batch_size % ranks:
        raise ValueError(f"batch_size={batch_size}: {ranks} ranks need a multiple of {ranks}.")
    sampler = DistributedSampler(digits, seed=SEED)  # it shuffles; the same seed on all ranks
    pinned = device.type == "cuda"  # and no workers: the rows are in memory already
    return DataLoader(digits, batch_size // ranks, sampler=sampler, pin_memory=pinned)


def without_padding(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor, int]]:
    """This rank's part of each batch, and the rows of the whole batch; every row once an epoch."""
    rank, ranks, left = dist.get_rank(), dist.get_world_size(), len(loader.dataset)
    for images, labels in loader:
        rows = min(left, loader.batch_size * ranks)
        mine = len(range(rank, rows, ranks))  # further rows are doubles of another rank's
        yield images[:mine], labels[:mine], rows  # it may be none: the rank must come all the same
        left -= rows


def forward_and_backward(model: nn.Module, images: Tensor, labels: Tensor, rows: int) -> Tensor:
    """Forward and backward of this rank's part of a batch of `rows`; its share of the mean loss."""
    share = F.cross_entropy(model(images), labels, reduction="sum") / rows
    (share * dist.get_world_size()).backward()
    return share.detach()


@torch.no_grad()
def accuracy_over_ranks(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Share of the loader's digits that `model` names rightly; each rank looks at its own."""
    digits, mine = loader.dataset, torch.tensor(list(loader.sampler))
    right = torch.zeros(len(digits), device=device)  # a place for each digit, filled by its rank
    guesses = model.eval()(digits.images[mine].to(device)).argmax(dim=1)
    right[mine.to(device)] = (guesses == digits.labels[mine].to(device)).float()
    dist.all_reduce(right, dist.ReduceOp.MAX)  # a digit that two ranks have looked at counts once
    return right.mean().item()


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Trained:
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
        loader.sampler.set_epoch(epoch)  # else every epoch has the order of the first one
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
    return Trained([loss.item() for loss in losses], right, weights_on_cpu(model))


if __name__ == "__main__":
    trained = train()
    if os.environ.get("RANK", "0") == "0":
        print(trained.report(EPOCHS), flush=True)
    os._exit(0)
