"""Trainings with a larger batch, with other learning rates, and with a sum in place of the mean."""

import os
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP, batches
from ddp_workbook.launcher.launch import launch

RATES = {"SGD": 0.05, "Adam": 0.003}  # tuned roughly, for a batch of 64
SMALL, TIMES = 64, 8  # rows; the large batch has 8 times as many
EPOCHS = 10


def optimizer_of(name: str, parameters, rate: float) -> torch.optim.Optimizer:
    """SGD with momentum, or Adam, both without weight decay."""
    if name == "SGD":
        return torch.optim.SGD(parameters, rate, momentum=0.9)
    return torch.optim.Adam(parameters, rate)


def larger_batch() -> dict[str, pd.DataFrame]:
    """For SGD and Adam: `losses_of_batches`, in a process each, at the same time."""
    return dict(zip(RATES, launch(losses_of_batches, ranks=len(RATES)), strict=True))


def losses_of_batches(epochs: int = EPOCHS) -> pd.DataFrame:
    """Loss on all digits after each epoch: a batch of 64, and one of 512 with three rates.

    One process trains alone, because N ranks with the same batch give the same. Rank 0 has SGD and
    rank 1 has Adam.
    """
    name = list(RATES)[int(os.environ["RANK"])]
    rate, large = RATES[name], SMALL * TIMES
    trainings = {
        f"{SMALL} rows, lr": (SMALL, rate),
        f"{large} rows, lr": (large, rate),
        f"{large} rows, lr · √{TIMES}": (large, rate * TIMES**0.5),
        f"{large} rows, lr · {TIMES}": (large, rate * TIMES),
    }
    curves = {title: _losses(name, *how, epochs) for title, how in trainings.items()}
    return pd.DataFrame(curves, index=range(epochs + 1)).rename_axis("epoch")


def _losses(name: str, rows: int, rate: float, epochs: int) -> list[float]:
    torch.manual_seed(0)
    digits, model = DigitsDataset(), DigitsMLP()
    optimizer = optimizer_of(name, model.parameters(), rate)
    losses = [_loss(model, digits)]
    for epoch in range(epochs):
        for images, labels in batches(digits, rows, epoch):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        losses.append(_loss(model, digits))
    return losses


@torch.no_grad()
def _loss(model: DigitsMLP, digits: DigitsDataset) -> float:
    return F.cross_entropy(model(digits.images), digits.labels).item()


def add_up(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A communication hook: the sum over the ranks, where DDP takes the mean."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


# The annotation is a string, or each rank would import matplotlib; a comm hook's must not be one.
@figures.drawn
def trainings(
    panels: Mapping[str, pd.DataFrame], highest: float | None = None
) -> "figures.Picture":
    """A panel for each optimizer, a line for each training; above `highest` they are cut off."""
    unit, about = "mean loss over the rows", "Loss of trainings beside each other"
    picture = figures.lines(panels, unit, about, log="y")
    picture.axes.set_ylim(top=highest)
    return picture


def sum_against_mean(name: str, ways: Sequence[str], ranks: int = 4) -> pd.DataFrame:
    """A loss for each step of one epoch and each of `ways`, which are among WAYS.

    The last step is left out: its batch has five rows, so its loss is no comparison for the others.
    """
    curves = launch(losses_of_ranks, name, ways, ranks=ranks)[0]
    return pd.DataFrame(curves).rename_axis("step").iloc[:-1]


WAYS: dict[str, tuple[Callable | None, float]] = {  # hook, factor of the learning rate
    "mean": (None, 1.0),
    "sum": (add_up, 1.0),
    "sum, lr / 4": (add_up, 1 / 4),
    "sum, lr · 8": (add_up, 8.0),  # on 4 ranks: a sum as over 32
}


def losses_of_ranks(name: str, ways: Sequence[str]) -> dict[str, list[float]]:
    """For each way the loss of the whole batch in each step of one epoch."""
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    found = {}
    for way in ways:
        hook, factor = WAYS[way]
        torch.manual_seed(0)
        ddp = DistributedDataParallel(DigitsMLP().to(device))
        if hook:
            ddp.register_comm_hook(None, hook)
        optimizer = optimizer_of(name, ddp.parameters(), RATES[name] * factor)
        shares = []
        for images, labels in batches(digits, SMALL, epoch=0):
            optimizer.zero_grad()
            rows = images[mine].to(device), labels[mine].to(device)
            shares.append(forward_and_backward(ddp, *rows, len(images)))
            optimizer.step()
        dist.all_reduce(whole := torch.stack(shares))
        found[way] = whole.tolist()
        del ddp
    cleanup()
    return found
