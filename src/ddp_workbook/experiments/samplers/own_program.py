"""A table of the reader's own: the data set, and the loop of one process over it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.launcher.launch import launch

LEARNING_RATE, MOMENTUM, HIDDEN = 0.05, 0.9, 64


class TableDataset(Dataset):
    """Rows of a CSV table: the column `label` is the class, all others are features.

    Item i is (features [columns], class []): float32 with mean 0 and deviation 1, and int64.
    """

    def __init__(self, path: str | Path, label: str) -> None:
        table = pd.read_csv(path)
        self.classes = sorted(table[label].unique())  # sorted: every rank numbers them alike
        numbers = torch.tensor(table[label].map(self.classes.index).to_numpy())
        features = torch.tensor(table.drop(columns=label).to_numpy(), dtype=torch.float32)
        # mean and deviation of the whole table, not of one rank's rows
        self.features = (features - features.mean(dim=0)) / features.std(dim=0).clamp(min=1e-6)
        self.labels = numbers

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.features[row], self.labels[row]


def make_model(table: TableDataset) -> nn.Module:
    """Two layers, as wide as the table asks for."""
    columns, classes = table.features.shape[1], len(table.classes)
    return nn.Sequential(nn.Linear(columns, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, classes))


def train_alone(path: str, label: str, epochs: int, batch_size: int) -> list[float]:
    """The loop of one process; the loss of each step."""
    table = TableDataset(path, label)
    loader = DataLoader(table, batch_size, shuffle=True)
    torch.manual_seed(0)
    model = make_model(table)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for _ in range(epochs):
        for features, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_rank(path: str, label: str, epochs: int, batch_size: int) -> list[float]:
    """The loop of every rank; the loss of each global batch. The last short batch is left out."""
    device = setup()
    table = TableDataset(path, label)
    share = batch_size // dist.get_world_size()
    sampler = DistributedSampler(table)
    loader = DataLoader(table, share, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(make_model(table).to(device))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for features, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(features.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    means = torch.stack(losses)
    dist.all_reduce(means)
    means /= dist.get_world_size()
    del ddp
    cleanup()
    return means.tolist()


def losses_on_ranks(
    path: str | Path, label: str, ranks: tuple[int, ...] = (1, 2, 4), **of_training
) -> pd.DataFrame:
    """ranks, step, loss: the program on each number of ranks, the global batch always the same."""
    arguments = {"epochs": 2, "batch_size": 128} | of_training
    rows = []
    for size in ranks:
        losses = launch(train_rank, str(Path(path).resolve()), label, ranks=size, **arguments)[0]
        rows += [(size, step, loss) for step, loss in enumerate(losses)]
    return pd.DataFrame(rows, columns=["ranks", "step", "loss"])


@figures.house_style
def ranks_plot(losses: pd.DataFrame) -> figures.Picture:
    """Loss against step, a line for each number of ranks; the columns are ranks, step, loss."""
    wide = losses.pivot(index="step", columns="ranks", values="loss")
    apart = (wide.max(axis=1) - wide.min(axis=1)).max()
    curves = wide.rename(columns=lambda ranks: f"{ranks} rank{'s' * (ranks > 1)}")
    picture = figures.lines(curves, "loss of the global batch", "The same program on ranks")
    picture.axes.set_ylim(0)
    picture.alt += f" The lines are at most {apart:.1e} apart."
    return picture
