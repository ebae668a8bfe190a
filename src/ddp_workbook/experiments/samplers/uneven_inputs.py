"""Ranks with unequal numbers of batches, samples of unequal cost, and classes that are rare."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, Sampler

from ddp_workbook.chapters.digits import DigitsDataset
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.launcher.launch import launch
from manyranks.recording.collectives import record_collectives


def steps_with_join(batches: Sequence[int], use_join: bool = True, **options) -> list[float]:
    """The gradient after each step; rank r has batches[r] of them, each with gradient 1 + 2 r."""
    device, rank, gradients = setup(), dist.get_rank(), []
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False).to(device))
    with Join([ddp], enable=use_join, **options):
        for _ in range(batches[rank]):
            ddp.zero_grad()
            ddp(torch.full((1, 1), 1.0 + 2 * rank, device=device)).sum().backward()
            gradients.append(ddp.module.weight.grad.item())
    del ddp
    cleanup()
    return gradients


def all_reduces(batches: int = 20) -> dict[str, int]:
    """How many all-reduces rank 0 makes for so many batches, without Join and with it."""
    counts = {}
    for name, use_join in {"without Join": False, "with Join": True}.items():
        wire = record_collectives(steps_with_join, [batches] * 2, ranks=2, use_join=use_join)
        counts[name] = int(((wire["rank"] == 0) & (wire["op"] == "all_reduce")).sum())
    return counts


class DistributedWeightedSampler(Sampler[int]):
    """Draws samples with these weights, with replacement; each rank takes its share of the draw.

    Pass a weight for each sample, not for each class. An epoch has as many samples as the data set,
    rounded down to a multiple of the number of ranks, so that no padding is needed.
    """

    def __init__(self, weights: torch.Tensor, seed: int = 0) -> None:
        self.weights, self.seed, self.epoch = weights.double(), seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.weights) // dist.get_world_size()

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)  # the same on all ranks
        total = len(self) * dist.get_world_size()
        draw = torch.multinomial(self.weights, total, replacement=True, generator=generator)
        return iter(draw[dist.get_rank() :: dist.get_world_size()].tolist())


def rare_digits() -> torch.Tensor:
    """Labels of the digits, with only ten samples of the digit 8."""
    labels = DigitsDataset().labels
    mask = torch.ones(len(labels), dtype=torch.bool)
    mask[(labels == 8).nonzero().flatten()[10:]] = False
    return labels[mask]


def balancing_weights(labels: torch.Tensor) -> torch.Tensor:
    """A weight for each sample, so that every class is drawn equally often: 1 / its count."""
    return (1 / labels.bincount())[labels]


def draw_labels(weighted: bool) -> list[int]:
    """The labels that this rank gets in an epoch."""
    setup()
    labels = rare_digits()
    sampler = (
        DistributedWeightedSampler(balancing_weights(labels))
        if weighted
        else DistributedSampler(labels)
    )
    own_labels = labels[list(sampler)].tolist()
    cleanup()
    return own_labels


def classes_by_rank(ranks: int = 4) -> pd.DataFrame:
    """A row for each sampler, rank and class: how many samples of it the rank got in an epoch."""
    rows = []
    for sampler in (DistributedSampler, DistributedWeightedSampler):
        weighted = sampler is DistributedWeightedSampler
        for rank, labels in enumerate(launch(draw_labels, weighted, ranks=ranks)):
            counts = torch.tensor(labels).bincount(minlength=10).tolist()
            rows += [(sampler.__name__, rank, label, count) for label, count in enumerate(counts)]
    return pd.DataFrame(rows, columns=["sampler", "rank", "class", "samples"])


def text_lengths(count: int = 32, seed: int = 0) -> list[int]:
    """Lengths of texts in words: most are short, a few are very long."""
    generator = torch.Generator().manual_seed(seed)
    return (20 * torch.randn(count, generator=generator).exp() ** 1.2).int().tolist()


def words_by_rank(lengths: Sequence[int], ranks: int = 4) -> pd.DataFrame:
    """A row a rank: which of a step's texts DistributedSampler gives it, and their words."""
    rows = []
    for rank in range(ranks):
        mine = list(DistributedSampler(lengths, ranks, rank))
        rows.append((rank, mine, [lengths[i] for i in mine]))
    return pd.DataFrame(rows, columns=["rank", "texts", "words"])


@figures.house_style
def work_plot(table: pd.DataFrame) -> figures.Picture:
    """A bar for each rank: its texts, one after the other, as long as they have words.

    `table` has a row a rank, with the column words: a list. The line marks the mean of the ranks,
    the pale part of each bar the time in which the rank waits for the longest one.
    """
    totals, events = table["words"].map(sum), []
    for rank, words in zip(table["rank"], table["words"], strict=True):
        ends = [0, *itertools.accumulate(words), totals.max()]
        kinds = ["works"] * len(words) + ["waits"]
        pieces = zip(kinds, itertools.pairwise(ends), strict=True)
        events += [(f"rank {rank}", what, *piece) for what, piece in pieces]
    frame = pd.DataFrame(events, columns=["lane", "what", "start", "end"])
    unit = "words in one step; a piece is one text; pale: the rank waits"
    about = "The texts of each rank"
    picture = figures.lanes(frame, unit, about, by="rank", pale=["waits"], keys={})
    for bar in picture.axes.patches:
        bar.set_linewidth(1)  # a white line between two texts
    for row, total in enumerate(totals):
        figures.beside(picture.axes, row, f"{total}")
        picture.alt += f" In all, rank {row}: {total}."
    picture.axes.axvline(totals.mean(), color=INK, lw=1.4, ls=(0, (4, 2)))
    picture.axes.set_title(f"dashed: {totals.mean():.0f} words, the mean of the ranks")
    picture.alt += f" The mean is {totals.mean():.0f}."
    return picture


@figures.house_style
def classes_plot(table: pd.DataFrame, rare: int) -> figures.Picture:
    """A panel for each sampler, a bar for each class, stacked by rank; class `rare` is marked."""
    panels = {
        sampler: rows.pivot(index="class", columns="rank", values="samples").add_prefix("rank ")
        for sampler, rows in table.groupby("sampler", sort=False)
    }
    about = "Samples of each digit in an epoch, all ranks together"
    picture = figures.bars(panels, "samples in an epoch", about, upright=True)
    for axes, (sampler, counts) in zip(picture.figure.axes, panels.items(), strict=True):
        totals = counts.sum(axis=1)
        of_rare, common = totals[rare], totals.drop(rare)
        axes.text(rare, of_rare, f"{of_rare}", ha="center", va="bottom", weight="bold")
        axes.set_xlabel("digit")
        axes.margins(y=0.1)
        picture.alt += (
            f" {sampler}: {of_rare} samples of the digit {rare}, {common.min()} to {common.max()} "
            "of each other digit."
        )
    return picture
