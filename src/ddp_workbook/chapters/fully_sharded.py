"""Train with every parameter, gradient and optimizer state sharded over the ranks.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/fully_sharded.py

New since fully_sharded_by_hand.py: `fully_shard` does it. It turns parameters into DTensors, which
know that they are shards of larger tensors, and has each module that it was called on gather and
free its own. It also gathers the next block while this one computes.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_workbook.chapters.digits import (
    DigitsDataset,
    DigitsTransformer,
    Result,
    accuracy,
    batches,
)
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.training_run import run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 3
LEARNING_RATE, MAX_NORM = 0.002, 1.0
SEED = 0


def shard_by_block(model: DigitsTransformer, device: torch.device) -> DigitsTransformer:
    """Shard each block by itself, then the rest. In place, and before the optimizer is made."""
    # The mesh is given: on a Mac, torch would make one of its GPU, although gloo is on the CPU.
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the state dict with full tensors, on the CPU; every rank must call this."""
    return {name: tensor.full_tensor().cpu() for name, tensor in model.state_dict().items()}


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
    model = DigitsTransformer(width, depth).to(device)
    sharded = shard_by_block(model, device)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(sharded, my_images, my_labels, len(images))
            nn.utils.clip_grad_norm_(sharded.parameters(), MAX_NORM)
            optimizer.step()
            losses.append(loss)
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    right = accuracy(sharded, digits)  # on all ranks: its forward gathers
    weights = whole_weights(sharded)
    cleanup()
    return Result([loss.item() for loss in losses], right, weights)


if __name__ == "__main__":
    run(train)
