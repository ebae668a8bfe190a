"""Who gets which samples: the samples are numbers, so that a rank can say what it got."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from torch.utils.data import DataLoader, DistributedSampler

import ddp_workbook
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.experiments.samplers.assignments import assignment_plot, sample_table
from manyranks import figures
from manyranks.launcher.launch import launch


def play_index_sharding() -> ddp_workbook.Play:
    """Two epochs of a loader on each rank, with controls for the sampler and the loader."""
    return ddp_workbook.play(
        load_samples,
        samples_plot,
        ranks=ddp_workbook.slider("ranks", range(1, 7), 4),
        stills=[
            {"shuffle": False},
            {"samples": 12},
            {"set_epoch": False},
            {"ranks": 6},
            {"drop_last": True},
        ],
        samples=ddp_workbook.slider("samples", range(3, 25), 10),
        batch_size=ddp_workbook.slider("batch_size", range(1, 5), 2),
        shuffle=ddp_workbook.switch("shuffle", True),
        set_epoch=ddp_workbook.switch("set_epoch", True),
        drop_last=ddp_workbook.switch("drop_last"),
    )


def load_samples(
    samples: int, epochs: int = 2, set_epoch: bool = True, batch_size: int = 2, **of_sampler
) -> list:
    """For each epoch, the samples that this rank's loader gave out, in order."""
    setup()
    sampler = DistributedSampler(range(samples), **of_sampler)
    loader = DataLoader(range(samples), batch_size, sampler=sampler)
    samples_by_epoch = []
    for epoch in range(epochs):
        if set_epoch:
            sampler.set_epoch(epoch)
        samples_by_epoch.append([sample for batch in loader for sample in batch.tolist()])
    return samples_by_epoch  # without cleanup(), whose barrier would be a message


@figures.house_style
def samples_plot(
    of_ranks: list[list[list[int]]], samples: int, batch_size: int, **_: object
) -> figures.Picture:
    """Who got which of the samples, in which step; how many came twice, and which never came."""
    epochs = dict(enumerate(zip(*of_ranks, strict=True)))
    summaries = {epoch: epoch_summary(epochs[epoch], samples) for epoch in epochs}
    words = "\n".join(f"epoch {epoch}: {summary}" for epoch, summary in summaries.items())
    table = sample_table(epochs)
    if table.empty:
        axes = figures.sheet(figures.WIDTH, 1)
        axes.text(0.1, 0.5, words, va="center")
        return figures.Picture(axes.figure, f"No rank got a sample. {words}.")
    notes = {epoch: summary.replace("; ", "\n") for epoch, summary in summaries.items()}
    picture = assignment_plot(table, batch_size, notes)
    picture.alt += f" {words}.".replace("\n", "; ")
    return picture


def epoch_summary(shares: Sequence[Sequence[int]], samples: int) -> str:
    """How many samples were given out in an epoch, how many repeated, and which were left out."""
    all_samples = [sample for share in shares for sample in share]
    count, repeats = len(all_samples), len(all_samples) - len(set(all_samples))
    never = sorted(set(range(samples)) - set(all_samples))
    missing = ", ".join(map(str, never)) or "none"
    return f"{count} given out, {repeats} repeated; left out: {missing}"


def assignment_table(samples: int, ranks: int, **arguments) -> pd.DataFrame:
    """A row for each sample that a rank received: epoch, rank, place, sample.

    The arguments are those of `load_samples`.
    """
    of_ranks = launch(load_samples, samples, ranks=ranks, **arguments)
    return sample_table(dict(enumerate(zip(*of_ranks, strict=True))))


def padding_table(sizes: list[int], ranks: int) -> pd.DataFrame:
    """For data sets of these sizes, what all `ranks` get together: padded, and with drop_last."""
    rows = []
    for size in sizes:
        padded_size, drop_last_size = (
            ranks * len(DistributedSampler(range(size), ranks, rank=0, drop_last=drop))
            for drop in (False, True)
        )
        rows.append((size, padded_size, padded_size - size, drop_last_size, size - drop_last_size))
    columns = ["samples", "given out", "repeated", "given out with drop_last", "left out"]
    return pd.DataFrame(rows, columns=columns).set_index("samples")
