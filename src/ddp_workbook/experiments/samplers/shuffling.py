"""What the order of the samples does to the loss: sorted digits, trained on two ranks."""

from __future__ import annotations

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.launcher.launch import launch

WAYS = {
    "set_epoch": {},
    "set_epoch forgotten": {"set_epoch": False},
    "shuffle=False": {"shuffle": False},
}
DIGITS, EPOCHS, SEEDS = 100, 8, 3
BATCH_SIZE = 2  # one rank's
TITLES = {"printed": "mean of the steps' losses", "true": "loss of all 100 digits after the epoch"}


def losses_by_way(ranks: int = 2) -> pd.DataFrame:
    """Train in each of `WAYS`, from three seeds: way, seed, epoch (from 1), printed, true.

    `printed` is the mean of the losses of the epoch's steps, which most programs print; `true` is
    the mean loss of all 100 digits after the epoch.
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
    """One training: a row an epoch. The caller has joined the group."""
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
    """The mean loss of all digits, with the weights as they are now."""
    images, labels = (torch.stack(part).to(device) for part in zip(*data, strict=True))
    return F.cross_entropy(ddp.module(images), labels).item()


def sorted_digits(seed: int) -> Subset:
    """100 digits chosen by the seed: first all zeros among them, then all ones, and so on."""
    digits = DigitsDataset()
    rows = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))[:DIGITS]
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
        title: mean[column].unstack("way", sort=False).rename_axis("epochs")
        for column, title in TITLES.items()
    }
    about = "A line for each way to order the samples, from the first epoch to the last"
    picture = figures.lines(panels, "loss", about, log="y")
    for axes, column in zip(picture.figure.axes, TITLES, strict=True):
        for line in list(axes.lines):
            line.set_markevery(1)
            ends = (end[column][line.get_label()] for end in (low, high))
            axes.fill_between(line.get_xdata(), *ends, color=line.get_color(), alpha=0.15, lw=0)
    return picture
