"""A checkpoint under DDP: rank 0 writes it, every rank reads it, and the training goes on."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup

ROWS = 64  # of a step, of all ranks together


def save_and_load(folder: str) -> float:
    """Two steps, a checkpoint between them; how far the weights are from those without one."""
    device, path = setup(), Path(folder, "checkpoint.pt")
    ddp, optimizer = model_and_optimizer(device, seed=0)
    step(ddp, optimizer, 0, device)
    if dist.get_rank() == 0:  # all ranks have the same weights and the same optimizer state
        state = {"model": ddp.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, path)
    dist.barrier()  # nobody reads before the file is whole
    again, optimizer_again = model_and_optimizer(device, seed=1)  # as after a restart
    state = torch.load(path, map_location=device, weights_only=True)
    again.module.load_state_dict(state["model"])
    optimizer_again.load_state_dict(state["optimizer"])
    step(ddp, optimizer, 1, device)
    step(again, optimizer_again, 1, device)
    apart = (weights(ddp) - weights(again)).abs().max().item()
    del ddp, again
    cleanup()
    return apart


def model_and_optimizer(
    device: torch.device, seed: int
) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    """A new model in DDP, with an Adam of its own."""
    torch.manual_seed(seed)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    return ddp, torch.optim.Adam(ddp.parameters(), lr=0.01)


def step(
    ddp: nn.Module, optimizer: torch.optim.Optimizer, number: int, device: torch.device
) -> None:
    """Train on this rank's rows of step `number`."""
    digits = DigitsDataset()
    mine = slice(number * ROWS + dist.get_rank(), (number + 1) * ROWS, dist.get_world_size())
    optimizer.zero_grad()
    F.cross_entropy(ddp(digits.images[mine].to(device)), digits.labels[mine].to(device)).backward()
    optimizer.step()


def weights(model: nn.Module) -> Tensor:
    """All parameters in one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach()
