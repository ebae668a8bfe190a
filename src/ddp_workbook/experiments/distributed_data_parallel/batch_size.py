"""Trainings with a larger batch, with other learning rates, and with a sum in place of the mean."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, batches
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from manyranks import figures
from manyranks.launcher.launch import launch

RATES = {"SGD": 0.05, "Adam": 0.003}  # tuned roughly, for a batch of 64
SMALL = 64  # rows of a batch


def optimizer_of(name: str, parameters, rate: float) -> torch.optim.Optimizer:
    """SGD with momentum, or Adam, both without weight decay."""
    if name == "SGD":
        return torch.optim.SGD(parameters, rate, momentum=0.9)
    return torch.optim.Adam(parameters, rate)


def losses_of_one_process(name: str, rows: int, rate: float, epochs: int) -> list[float]:
    """Loss on all digits before the training, and after each epoch with batches of `rows`."""
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
    device = model.output.bias.device
    return F.cross_entropy(model(digits.images.to(device)), digits.labels.to(device)).item()


def sum_hook(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A communication hook: the sum over the ranks, where DDP takes the mean."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


# The annotation is a string, or each rank would import matplotlib; a comm hook's must not be one.
@figures.house_style
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
    "sum": (sum_hook, 1.0),
    "sum, lr / 4": (sum_hook, 1 / 4),
    "sum, lr · 8": (sum_hook, 8.0),  # on 4 ranks: a sum as over 32
}


def losses_of_ranks(name: str, ways: Sequence[str]) -> dict[str, list[float]]:
    """For each way the loss of the whole batch in each step of one epoch."""
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    losses = {}
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
        losses[way] = whole.tolist()
        del ddp
    cleanup()
    return losses


# To play with

PLAY_EPOCHS = 6  # epochs
FACTORS = {f"lr {sign}": factor for sign, factor in (("/ 4", 0.25), ("", 1.0), ("· 2", 2.0))}
FACTORS |= {f"lr · {factor:g}": factor for factor in (4.0, 8.0, 16.0)}


def play_batch() -> "ddp_workbook.Play":
    """A training on real ranks, with controls for its batch and its learning rate."""
    return ddp_workbook.play(
        losses_with_accumulation,
        loss_plot,
        ranks=ddp_workbook.slider("ranks", (1, 2, 4), 2),
        stills=[
            {"micro_batches": 1},
            {"micro_batches": 4, "rate": "lr · 4"},
            {"rate": "lr · 8"},
            {"rate": "lr · 8", "optimizer": "Adam"},
            {"rate": "lr · 16"},
        ],
        micro_batches=ddp_workbook.slider("micro-batches a step", (1, 2, 4, 8), 8),
        rows=ddp_workbook.slider("rows of a micro-batch", (16, 32, 64), 32),
        rate=ddp_workbook.slider("learning rate", FACTORS, "lr "),
        optimizer=ddp_workbook.choice("optimizer", RATES),
    )


def losses_with_accumulation(
    micro_batches: int, rows: int, rate: str, optimizer: str
) -> list[float]:
    """Loss on all digits after each epoch; a rank's share of a batch comes in micro-batches."""
    device, digits = setup(), DigitsDataset()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    step = optimizer_of(optimizer, ddp.parameters(), RATES[optimizer] * FACTORS[rate])
    parts, rank = micro_batches * dist.get_world_size(), dist.get_rank()
    own = range(rank * micro_batches, (rank + 1) * micro_batches)
    losses = [_loss(ddp.module, digits)]
    for epoch in range(PLAY_EPOCHS):
        for images, labels in batches(digits, rows * parts, epoch):
            step.zero_grad()
            for number in own:
                mine = slice(number, None, parts)
                with nullcontext() if number == own[-1] else ddp.no_sync():
                    forward_and_backward(
                        ddp, images[mine].to(device), labels[mine].to(device), len(images)
                    )
            step.step()
        losses.append(_loss(ddp.module, digits))
    del ddp
    cleanup()
    return losses


@functools.cache
def first_training(optimizer: str) -> list[float]:
    """The loss of one process with a batch of 64 and the optimizer's own rate."""
    return losses_of_one_process(optimizer, SMALL, RATES[optimizer], PLAY_EPOCHS)


@figures.house_style
def loss_plot(
    of_ranks: Sequence[Sequence[float]],
    ranks: int,
    micro_batches: int,
    rows: int,
    rate: str,
    optimizer: str,
) -> "figures.Picture":
    """The loss after each epoch, beside that of one process with a batch of 64."""
    batch = ranks * micro_batches * rows
    name = f"{batch} rows, {rate.strip()}"
    first = f"one process, {SMALL} rows, lr"
    table = pd.DataFrame({first: first_training(optimizer), name: of_ranks[0]})
    about = f"Loss of {optimizer} on all digits"
    table = table.rename_axis("epoch")
    picture = figures.lines(table, "mean loss over the rows", about, log="y")
    steps = math.ceil(len(DigitsDataset()) / batch)
    words = f"{rows} · {micro_batches} · {ranks} = {batch} rows a step, {steps} steps an epoch"
    picture.axes.set_ylim(0.01, 10)
    picture.axes.set_title(words)
    picture.alt += f" {words}."
    return picture
