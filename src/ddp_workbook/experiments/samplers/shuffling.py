"""What the order of the samples does to the loss: sorted digits, trained on two ranks."""

from __future__ import annotations

import math

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.launcher.launch import launch
from manyranks.rank_colours import contrast, for_text

WAYS = {
    "with set_epoch": {},
    "without set_epoch": {"set_epoch": False},
    "shuffle=False": {"shuffle": False},
}
SAMPLES, EPOCHS, SEEDS = 100, 8, 3
BATCH_SIZE = 2  # one rank's
TITLES = {
    "printed": "mean of the epoch's training losses",
    "true": "loss of all 100 samples after the epoch",
}
NAME_GAP = 0.075  # of a panel's height, between two names at the ends of lines


def losses_by_way(ranks: int = 2) -> pd.DataFrame:
    """Train in each of `WAYS`, from three seeds: way, seed, epoch (from 1), printed, true.

    `printed` is the mean of the losses of the epoch's steps, which most programs print; `true` is
    the mean loss of all 100 samples after the epoch.
    """
    return pd.DataFrame(launch(train_all, ranks=ranks)[0])


def train_all() -> list[dict]:
    """The rows of the table, the same on every rank."""
    device, rows = setup(), []
    for way, options in WAYS.items():
        for seed in range(SEEDS):
            rows += [{"way": way, "seed": seed, **row} for row in train(seed, device, **options)]
    cleanup()
    return rows


def train(
    seed: int, device: torch.device, shuffle: bool = True, set_epoch: bool = True
) -> list[dict]:
    """One training run: a row an epoch. The caller has joined the group."""
    data, rows = sorted_digits(seed), []
    sampler = DistributedSampler(data, shuffle=shuffle, seed=1000 * seed)
    loader = DataLoader(data, BATCH_SIZE, sampler=sampler)
    torch.manual_seed(seed)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.3)
    for epoch in range(EPOCHS):
        if set_epoch:
            sampler.set_epoch(epoch)
        mean_loss = train_epoch(ddp, optimizer, loader, device)
        rows.append(
            {"epoch": epoch + 1, "printed": mean_loss, "true": true_loss(ddp, data, device)}
        )
    del ddp
    return rows


def train_epoch(
    ddp: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    device: torch.device,
) -> float:
    """The mean loss of the steps, over all ranks."""
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


@torch.no_grad()
def true_loss(ddp: DistributedDataParallel, data: Subset, device: torch.device) -> float:
    """The mean loss of all samples, with the weights as they are now."""
    images, labels = (torch.stack(part).to(device) for part in zip(*data, strict=True))
    return F.cross_entropy(ddp.module(images), labels).item()


def sorted_digits(seed: int) -> Subset:
    """100 samples chosen by the seed: first all zeros among them, then all ones, and so on."""
    digits = DigitsDataset()
    rows = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))[:SAMPLES]
    return Subset(digits, rows[digits.labels[rows].argsort(stable=True)].tolist())


@figures.house_style
def losses_plot(losses: pd.DataFrame) -> figures.Picture:
    """Two panels, the printed loss and the true one: a line a way, the mean over the seeds.

    `losses` has the columns way, seed, epoch, printed and true. The band behind a line goes from
    the lowest to the highest seed.
    """
    of_epochs = losses.groupby(["way", "epoch"], sort=False)[list(TITLES)]
    low, mean, high = of_epochs.min(), of_epochs.mean(), of_epochs.max()
    panels = {
        title: mean[column].unstack("way", sort=False).rename_axis("epoch")
        for column, title in TITLES.items()
    }
    about = "A line for each way to order the samples, from the first epoch to the last"
    picture = figures.lines(panels, "loss, logarithmic", about, log="y")
    for legend in picture.figure.legends:
        legend.remove()
    for axes, column in zip(picture.figure.axes, TITLES, strict=True):
        for line in axes.lines:
            line.set_markevery(1)
            ends = (end[column][line.get_label()] for end in (low, high))
            axes.fill_between(line.get_xdata(), *ends, color=line.get_color(), alpha=0.15, lw=0)
        _name_lines(axes)
    guess, last = math.log(10), picture.figure.axes[-1]
    last.hlines(guess, 1, EPOCHS, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    words = f"ten equal probabilities: {guess:.1f}"
    white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    last.text(EPOCHS, guess * 0.93, words, ha="right", va="top", size=9.5, bbox=white)
    picture.alt += f" Dashed: {words}."
    return picture


def _name_lines(axes: figures.Axes) -> None:
    """Write its name at the end of each line; names of lines that end together stand apart."""
    scale = axes.transScale.transform
    bottom, top = (scale((1, value))[1] for value in axes.get_ylim())
    heights = {line: scale((1, line.get_ydata()[-1]))[1] for line in axes.lines}
    below = -math.inf
    for line in sorted(axes.lines, key=heights.__getitem__):
        below = max((heights[line] - bottom) / (top - bottom), below + NAME_GAP)
        axes.text(
            1.03,
            below,
            line.get_label(),
            transform=axes.transAxes,
            va="center",
            color=max(line.get_color(), for_text(line.get_color()), key=_contrast_on_card),
        )


def _contrast_on_card(colour: str) -> float:
    return contrast(colour, "#ffffff")
