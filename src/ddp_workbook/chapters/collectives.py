"""Train with the gradients added up by two collectives, the two halves of an all-reduce.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/collectives.py

New since distributed_data_parallel.py: no DDP. Each rank's gradients become one long vector, cut
into one piece per rank. `reduce_scatter` adds up the vectors and leaves each rank with its own
piece of the sum; `all_gather` gives all pieces to all ranks. Nothing is sent before backward has
finished, and only the seed makes the models equal at the start.
"""

import torch
import torch.distributed as dist
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
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0


def all_reduce_in_two_halves(vector: Tensor) -> None:
    """Replace `vector` [n], n equal on all ranks, by its sum over the ranks; in place."""
    ranks = dist.get_world_size()
    padded = F.pad(vector, (0, -len(vector) % ranks))  # gloo gathers pieces of one length only
    pieces = list(padded.chunk(ranks))  # views: filling a piece fills `padded`
    own = torch.empty_like(pieces[0])
    dist.reduce_scatter(own, pieces)  # each rank now holds its piece of the sum
    dist.all_gather(pieces, own)
    vector.copy_(padded[: len(vector)])


def forward_and_backward(model: nn.Module, images: Tensor, labels: Tensor, rows: int) -> Tensor:
    """Forward and backward of this rank's part of a batch of `rows`; returns its share of the loss.

    Afterwards each .grad is, on every rank, the gradient of the mean loss over the whole batch.
    """
    share = F.cross_entropy(model(images), labels, reduction="sum") / rows
    share.backward()  # not divided by the ranks: the shares add up
    gradients = [parameter.grad for parameter in model.parameters()]
    vector = torch.cat([gradient.flatten() for gradient in gradients])
    all_reduce_in_two_halves(vector)
    for gradient, part in zip(gradients, vector.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    return share.detach()


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(model, my_images, my_labels, len(images))
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    cleanup()
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
