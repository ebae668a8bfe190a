"""Train on any number of machines; stop when asked, and resume later or on other machines.

    torchrun --standalone --nproc-per-node 4 src/ddp_workbook/chapters/many_machines.py

On two hosts, the same line on both, with the name of one of them for HOST:

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-id run1 \\
        --rdzv-endpoint HOST:29500 src/ddp_workbook/chapters/many_machines.py \\
        --epochs 30 --state run.state

New since distributed_data_parallel.py: nothing for the machines, since torchrun tells each rank its
place; `rank_placement` shows them. With --state FILE the ranks look after every epoch for
FILE.stop. If it is there, they save the training in FILE and end. The same command resumes from
FILE, also with more or fewer ranks, and ends with the same model, up to rounding.
"""

import os
import socket
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

import torch
import torch.distributed as dist
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
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.training_run import WRONG_INPUT, run

EPOCHS, BATCH_SIZE = 3, 64
WIDTH, DEPTH = 64, 1
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SEED = 0

STATE_KEYS = {"settings", "model", "optimizer", "done", "losses"}  # what is in a state file


class Place(NamedTuple):
    """Where a rank is."""

    rank: int
    host: str
    local_rank: int
    device: str

    def __str__(self) -> str:
        return f"rank {self.rank}: host {self.host}, local rank {self.local_rank}, {self.device}"


def rank_placement(device: torch.device) -> list[Place]:
    """The places of all ranks, in their order; rank 0 prints them. Every rank must call this."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    place = Place(dist.get_rank(), socket.gethostname(), local_rank, str(device))
    places = [place] * dist.get_world_size()
    dist.all_gather_object(places, place)
    if place.rank == 0:
        print(*places, sep="\n", flush=True)  # at once, in the log of a long job too
    return places


def stop_requested(state: str, device: torch.device) -> bool:
    """Whether there was a file `state`.stop, which is removed; all ranks ask, and hear the same."""
    if not state:
        return False
    # Rank 0 looks for all: a file that comes just now is there for one rank and not for another.
    stop = torch.zeros(1, device=device)
    if dist.get_rank() == 0 and Path(f"{state}.stop").exists():
        stop += 1
        Path(f"{state}.stop").unlink()  # else the next run would stop, too
    dist.broadcast(stop, src=0)
    return bool(stop)


def save_and_exit(
    state: str,
    settings: dict,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    done: int,
    losses: Tensor,
) -> NoReturn:
    """Rank 0 saves the training in the file `state`; then every rank ends, with exit code 0."""
    if dist.get_rank() == 0:
        values = {"settings": settings, "done": done, "losses": losses}
        values |= {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        part = Path(f"{state}.part")
        with part.open("wb") as file:
            torch.save(values, file)
            os.fsync(file.fileno())  # all on the disk, before it takes the place of an older state
        part.replace(state)  # atomically: nobody ever finds half a state
        print(f"Stopped after epoch {done}. The same command resumes from {state}.")
    cleanup()
    raise SystemExit(0)


def resume(
    state: str, epochs: int, settings: dict, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, Tensor]:
    """Resume from the file `state`, if there is one; how many epochs are done, and their losses.

    Rank 0 reads it for all: other hosts may have no such file. If it cannot be used, rank 0 says
    why, and every rank ends with exit code 2.
    """
    answer: list = [read_state(state, epochs, settings) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(answer, src=0)
    values, refusal = answer[0]
    if refusal:
        if dist.get_rank() == 0:
            print(refusal, file=sys.stderr, flush=True)
        dist.barrier()  # torchrun kills the others when the first rank ends
        raise SystemExit(WRONG_INPUT)
    if not values:
        return 0, torch.empty(0)
    model.load_state_dict(values["model"])
    optimizer.load_state_dict(values["optimizer"])  # the momentum is as much of it as the weights
    return values["done"], values["losses"]


def read_state(state: str, epochs: int, settings: dict) -> tuple[dict, str]:
    """What is saved in the file `state`, {} if there is none, and why it cannot be used, or ""."""
    path = Path(state)
    if state and not os.access(path.parent, os.W_OK):
        return {}, f"{state}: {path.parent} is not a folder where this job may write."
    if not state or not path.exists():
        return {}, ""
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)  # runs no code of the file
    except Exception as error:  # zip, pickle and the file system each have their own
        return {}, f"{state} cannot be read as a saved training ({type(error).__name__})."
    if not isinstance(values, dict) or values.keys() != STATE_KEYS:
        return {}, f"{state} is not a training that many_machines.py has saved."
    if values["settings"] != settings:
        return {}, f"{state} was saved by a training with {values['settings']}, not {settings}."
    if values["done"] > epochs:
        return {}, f"{state} has {values['done']} epochs already; --epochs asks for {epochs}."
    return values, ""


def train(
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    width: int = WIDTH,
    depth: int = DEPTH,
    state: str = "",
) -> Result:
    """Train on all ranks together; every rank returns the same.

    If asked to stop before the last epoch, save the training in the file `state`, and end.
    """
    device = setup()
    rank_placement(device)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    digits = DigitsDataset()
    torch.manual_seed(SEED)
    model = DigitsMLP(width, depth).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    settings = {"batch_size": batch_size, "width": width, "depth": depth}
    done, earlier = resume(state, epochs, settings, model, optimizer)
    losses = []
    for epoch in range(done, epochs):
        for images, labels in batches(digits, batch_size, epoch):
            optimizer.zero_grad()
            my_images, my_labels = images[mine].to(device), labels[mine].to(device)
            loss = forward_and_backward(ddp, my_images, my_labels, len(images))
            optimizer.step()
            losses.append(loss)
        done = epoch + 1
        if stop_requested(state, device):
            break
    losses = torch.tensor(losses, device=device)
    dist.all_reduce(losses)
    losses = torch.cat([earlier, losses.cpu()])
    del ddp
    if done < epochs:
        save_and_exit(state, settings, model, optimizer, done, losses)
    cleanup()
    return Result([loss.item() for loss in losses], accuracy(model, digits), weights_on_cpu(model))


if __name__ == "__main__":
    run(train)
