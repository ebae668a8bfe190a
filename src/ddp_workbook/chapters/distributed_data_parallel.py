"""Train with one process a device: every rank has the whole model and a share of each batch.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/distributed_data_parallel.py

New since data_parallel.py: processes instead of threads. Each one runs this file from top to
bottom, keeps a model of its own and takes its own rows. The ranks meet in `setup`, in the backward
pass, where DistributedDataParallel averages the gradients, in the sum of the losses, and in
`cleanup`. With plain `python` the file runs as a group of one rank; later chapters import `setup`
and `cleanup` from here.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsMLP,
    Result,
    accuracy,
    batches,
    weights_on_cpu,
)
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64  # the batch of all ranks together
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0

SINGLE_RANK_GROUP = {
    "rank": 0,
    "world_size": 1,
    "init_method": "tcp://127.0.0.1:0",
}  # port 0: any free one


def pick_device() -> torch.device:
    """This rank's own GPU if its node has one for each of its ranks, else the CPU."""
    # All ranks must choose alike: a rank on nccl and a rank on gloo never meet.
    enough = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if enough and dist.is_nccl_available():  # not on Windows
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cpu")


def setup() -> torch.device:
    """Join the process group that torchrun describes in the environment; return the device."""
    device = pick_device()
    gpu = device if device.type == "cuda" else None
    if gpu:
        torch.cuda.set_device(gpu)  # else every rank also takes some memory of GPU 0
    world = {} if "RANK" in os.environ else SINGLE_RANK_GROUP
    dist.init_process_group("nccl" if gpu else "gloo", device_id=gpu, **world)
    return device


def cleanup() -> None:
    """Leave the group when all ranks are done: a rank that leaves early looks like a dead one.

    Never in a `finally`: after an error the other ranks may be in a collective, and this hangs.
    """
    dist.barrier()
    dist.destroy_process_group()


def forward_and_backward(model: nn.Module, images: Tensor, labels: Tensor, rows: int) -> Tensor:
    """Forward and backward of this rank's part of a batch of `rows`; its share of the mean loss.

    Each parameter's .grad is then, on every rank, the gradient of the whole batch's mean loss.
    """
    share = F.cross_entropy(model(images), labels, reduction="sum") / rows
    # DDP averages over the ranks, but shares must be added: world_size undoes the division.
    (share * dist.get_world_size()).backward()
    return share.detach()


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())  # a small batch may leave none
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(ddp, my_images, my_labels, len(images))
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)  # adds up the shares; in the loop, each step would wait twice
    del ddp  # before its group: whoever frees a gloo group last can hang (torch 2.13)
    cleanup()
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
