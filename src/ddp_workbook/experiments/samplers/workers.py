"""DataLoader workers: who makes a batch, with which random numbers, and the time they save."""

from __future__ import annotations

import os
import time
from functools import partial

import pandas as pd
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.figures.palette import INK
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.timing import compare

SAMPLE_SECONDS, STEP_SECONDS = 0.005, 0.01
SAMPLES, BATCH_SIZE = 32, 4  # of the data set, and of one rank's loader
NO_WORKERS = "num_workers=0"
WAYS = {
    NO_WORKERS: {},
    "num_workers=1, kept": {"num_workers": 1, "persistent_workers": True},
    "num_workers=2, kept": {"num_workers": 2, "persistent_workers": True},
    "num_workers=2, new in each epoch": {"num_workers": 2},
}
WAITING, COMPUTING = "loading that waits", "loading that computes"


class Signed(Dataset):
    """Eight samples; each says which process made it, and draws a number as a random crop would."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, sample: int) -> dict:
        return {
            "sample": sample,
            "worker": get_worker_info().id,
            "process of worker": os.getpid(),
            "random number": torch.rand(1).item(),
        }


def roll_call(seeds: list[int]) -> list[dict]:
    """What this rank's loader brought; rank r calls torch.manual_seed(seeds[r]) before."""
    setup()
    rank = dist.get_rank()
    torch.manual_seed(seeds[rank])
    sampler = DistributedSampler(Signed(), shuffle=False)
    loader = DataLoader(Signed(), batch_size=2, sampler=sampler, num_workers=2, collate_fn=list)
    came = [{"rank": rank, "process of rank": os.getpid(), **item} for b in loader for item in b]
    cleanup()
    return came


def who_made_what(seeds: list[int]) -> pd.DataFrame:
    """A row a sample: rank, process of rank, sample, worker, its process, random number."""
    return pd.DataFrame([row for rows in launch(roll_call, seeds, ranks=2) for row in rows])


def random_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The random numbers of `who_made_what`, a row a rank, in the order of its samples."""
    drawn = table.groupby("rank")["random number"].agg(list)
    return pd.DataFrame(drawn.tolist(), drawn.index).rename_axis("rank").round(4)


class Costly(Dataset):
    """Samples of 5 ms each: of waiting, as for a disk, or of computing, as in decoding an image."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, sample: int) -> int:
        if self.kind == WAITING:
            time.sleep(SAMPLE_SECONDS)
        else:
            end = time.process_time() + SAMPLE_SECONDS  # of this process's own computing
            while time.process_time() < end:
                pass
        return sample


def epoch(loader: DataLoader) -> float:
    """Seconds of an epoch, from the first rank's start to the last one's end."""
    dist.barrier()
    start = time.perf_counter()
    for _ in loader:
        time.sleep(STEP_SECONDS)  # the GPU's part of a step
    dist.barrier()
    return time.perf_counter() - start


def time_epochs(rounds: int) -> pd.DataFrame:
    """Timings of both kinds of samples in each of `WAYS`, on this rank."""
    setup()
    tables = []
    for kind in (WAITING, COMPUTING):
        data = Costly(kind)
        loaders = {
            name: DataLoader(data, BATCH_SIZE, sampler=DistributedSampler(data), **options)
            for name, options in WAYS.items()
        }
        timed = compare({n: partial(epoch, one) for n, one in loaders.items()}, rounds)
        tables.append(timed.assign(kind=kind))
        del loaders  # ends the workers that were kept
    cleanup()
    return pd.concat(tables, ignore_index=True)


def epoch_times(ranks: int = 2, rounds: int = 3) -> pd.DataFrame:
    """kind, candidate (one of `WAYS`), round, seconds: an epoch of all ranks together."""
    return launch(time_epochs, rounds, ranks=ranks)[0]


@figures.drawn
def loading_plot(timings: pd.DataFrame, cores: int, dashed: float) -> figures.Picture:
    """A panel for each kind of samples, a bar for each way to load: the median epoch.

    `timings` has the columns kind, candidate, round and seconds. A dot is one epoch. `cores` share
    the work of all processes. `dashed` marks so many milliseconds. The slowest way is cut off where
    it would squeeze the other bars.
    """
    panels = dict(list(timings.assign(ms=1e3 * timings["seconds"]).groupby("kind", sort=False)))
    medians = {
        kind: part.groupby("candidate", sort=False)[["ms"]].median()
        for kind, part in panels.items()
    }
    slowest = pd.concat(medians, axis=1).max(axis=1).sort_values()
    edge = min(slowest.iloc[-1], 1.6 * slowest.iloc[-2])
    about = f"Median epoch on {cores} cores"
    picture = figures.bars(medians, "milliseconds per epoch", about, by="candidate")
    for axes, (kind, part) in zip(picture.figure.axes, panels.items(), strict=True):
        for row, (name, median) in enumerate(medians[kind]["ms"].items()):
            epochs = part.loc[part["candidate"] == name, "ms"]
            axes.plot(epochs, [row] * len(epochs), "o", ms=5, mfc="white", mec=INK)
            figures.beside(axes, row, f"{median:.0f}")
        axes.axvline(dashed, color=INK, lw=1.4, ls=(0, (4, 2)))
        axes.set_xlim(0, 1.05 * edge)
    words = f"bar and number: median of {timings['round'].nunique()} epochs; dot: one epoch; "
    words += f"dashed: {dashed:.0f} ms; {cores} cores"
    if slowest.iloc[-1] > edge:
        words += "; a bar that touches the edge is longer"
    picture.figure.supxlabel(words, x=0.01, ha="left", fontsize=9)
    return picture
