"""DataLoader workers: who makes a batch, with which random numbers, of which part of a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pandas as pd
import torch
import torch.distributed as dist
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    get_worker_info,
)

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.experiments.arguments import describe_arguments
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.launcher.launch import launch
from manyranks.recording.timing import compare

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


class TaggedDataset(Dataset):
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


def load_items(seeds: list[int]) -> list[dict]:
    """What this rank's loader brought; rank r calls torch.manual_seed(seeds[r]) before."""
    setup()
    rank = dist.get_rank()
    torch.manual_seed(seeds[rank])
    sampler = DistributedSampler(TaggedDataset(), shuffle=False)
    loader = DataLoader(
        TaggedDataset(), batch_size=2, sampler=sampler, num_workers=2, collate_fn=list
    )
    items = [{"rank": rank, "process of rank": os.getpid(), **item} for b in loader for item in b]
    cleanup()
    return items


def worker_table(seeds: list[int]) -> pd.DataFrame:
    """A row a sample: rank, process of rank, sample, worker, its process, random number."""
    return pd.DataFrame([row for rows in launch(load_items, seeds, ranks=2) for row in rows])


def random_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The random numbers of `worker_table`, a row a rank, in the order of its samples."""
    numbers = table.groupby("rank")["random number"].agg(list)
    return pd.DataFrame(numbers.tolist(), numbers.index).rename_axis("rank").round(4)


class SlowDataset(Dataset):
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


def epoch_seconds(loader: DataLoader) -> float:
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
        data = SlowDataset(kind)
        loaders = {
            name: DataLoader(data, BATCH_SIZE, sampler=DistributedSampler(data), **options)
            for name, options in WAYS.items()
        }
        timings = compare(
            {n: partial(epoch_seconds, loader) for n, loader in loaders.items()}, rounds
        )
        tables.append(timings.assign(kind=kind))
        del loaders  # ends the workers that were kept
    cleanup()
    return pd.concat(tables, ignore_index=True)


def epoch_times(ranks: int = 2, rounds: int = 3) -> pd.DataFrame:
    """kind, candidate (one of `WAYS`), round, seconds: an epoch of all ranks together."""
    return launch(time_epochs, rounds, ranks=ranks)[0]


@figures.house_style
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


# The arguments of the DataLoader


LOADER = {
    "dataset": "what the samples are taken from, by number or (IterableDataset) one by one",
    "batch_size": "rows of one rank's batch; the global batch is that times the world size",
    "shuffle": "shuffle, in one process; an error if there is a sampler, which makes the order",
    "sampler": "which samples, in which order: a DistributedSampler",
    "batch_sampler": "a sampler of whole batches; not with batch_size, shuffle, sampler, drop_last",
    "num_workers": "DataLoader workers of this rank; 0: the rank loads itself",
    "collate_fn": "makes a batch from a list of samples; here texts are filled up to one length",
    "pin_memory": "copy each batch into pinned memory (see below), from which a GPU can fetch it",
    "drop_last": "leave out this rank's last batch if it is too short",
    "timeout": "seconds to wait for a DataLoader worker's batch before an error; 0: no limit",
    "worker_init_fn": "called in each new DataLoader worker, with its number",
    "multiprocessing_context": "how DataLoader workers start: fork, spawn or forkserver",
    "generator": "draws their seed, and the order if shuffle=True; None: torch's own",
    "prefetch_factor": "batches that each DataLoader worker makes ahead; None: 2",
    "persistent_workers": "keep the DataLoader workers from one epoch to the next",
    "pin_memory_device": "deprecated: the loader finds the accelerator itself",
    "in_order": "hand out the batches in their order, even if a later one is ready first",
}


def argument_table() -> pd.DataFrame:
    """argument, default, what it does: the DataLoader's, as installed."""
    return describe_arguments(DataLoader, LOADER)


# A stream cut by rank and by worker


STREAM_LENGTH = 24


class Stream(IterableDataset):
    """The numbers 0 to 23, as if they came over a network one after the other."""

    def __init__(self, cut: Callable) -> None:
        self.cut = cut
        # Asked here, in the rank: a DataLoader worker that is not forked is in no process group.
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def __iter__(self) -> Iterator[int]:
        return self.cut(iter(range(STREAM_LENGTH)), self.rank, self.world_size)


def unsplit(stream: Iterator[int], rank: int, world_size: int) -> Iterator[int]:
    """Everything."""
    return stream


def by_rank(stream: Iterator[int], rank: int, world_size: int) -> Iterator[int]:
    """Every world_size-th sample, beginning with sample `rank`."""
    return islice(stream, rank, None, world_size)


def by_rank_and_worker(stream: Iterator[int], rank: int, world_size: int) -> Iterator[int]:
    """This process's own; where the exercise leads."""
    worker = get_worker_info()
    first, step = (worker.id, worker.num_workers) if worker else (0, 1)
    return islice(stream, rank + world_size * first, None, world_size * step)


SPLITS = {
    "not cut": unsplit,
    "cut by rank": by_rank,
    "cut by rank and DataLoader worker": by_rank_and_worker,
}


def read_all(num_workers: int) -> dict[str, list[int]]:
    """For each of `SPLITS`, the samples that this rank's loader brought."""
    setup()
    samples_by_way = {}
    for name, split in SPLITS.items():
        loader = DataLoader(Stream(split), batch_size=2, num_workers=num_workers)
        samples_by_way[name] = [sample for batch in loader for sample in batch.tolist()]
    cleanup()
    return samples_by_way


def stream_table(ranks: int = 2, num_workers: int = 2) -> pd.DataFrame:
    """A row for each of `SPLITS`: how many samples came, and how often each of the 24."""
    of_ranks = launch(read_all, num_workers, ranks=ranks)
    rows = {}
    for name in SPLITS:
        times = pd.Series(
            [s for samples_by_way in of_ranks for s in samples_by_way[name]]
        ).value_counts()
        rows[name] = {
            "different samples": len(times),
            "samples that came": int(times.sum()),
            "times each": " or ".join(map(str, sorted(times.unique()))),
        }
    return pd.DataFrame(rows).T
