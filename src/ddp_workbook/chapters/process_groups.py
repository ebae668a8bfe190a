"""Train on nodes x GPUs: gradients are summed along the rows of a mesh, then down its columns.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/process_groups.py

New since distributed_data_parallel.py: groups inside the world. `make_mesh` arranges the ranks in
rows, one for each node, and `sum_over_mesh` does by hand, group by group, what
DistributedDataParallel did for the whole world. A single machine with an even number of ranks plays
two nodes.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

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


def make_mesh(device: torch.device) -> DeviceMesh:
    """The ranks as a table, in order: a row for each node, a column for each place in a node."""
    world_size = dist.get_world_size()
    in_a_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if in_a_node == world_size and world_size % 2 == 0:
        in_a_node = world_size // 2  # one machine plays two
    shape = (world_size // in_a_node, in_a_node)
    return init_device_mesh(device.type, shape, mesh_dim_names=("node", "gpu"))


def sum_over_mesh(model: nn.Module, mesh: DeviceMesh) -> None:
    """Replace each gradient by its sum over all ranks: along the rows, then down the columns."""
    for dimension in ("gpu", "node"):  # a dimension's group holds the ranks that differ in it alone
        group = mesh.get_group(dimension)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)


def forward_and_backward(
    model: nn.Module, mesh: DeviceMesh, images: Tensor, labels: Tensor, rows: int
) -> Tensor:
    """Forward and backward of this rank's part of a batch of `rows`; its share of the mean loss.

    Each parameter's .grad is then, on every rank, the gradient of the whole batch's mean loss.
    """
    share = F.cross_entropy(model(images), labels, reduction="sum") / rows
    share.backward()  # no factor: the shares are added, nobody averages
    sum_over_mesh(model, mesh)
    return share.detach()


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Result:
    """Train on all ranks together; every rank returns the same."""
    device = setup()
    mesh = make_mesh(device)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    digits = DigitsDataset()
    torch.manual_seed(SEED)  # without DDP nobody broadcasts the weights: the seed makes them equal
    model = DigitsMLP(width, depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(model, mesh, my_images, my_labels, len(images))
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    cleanup()  # destroys the groups of the mesh, too
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
