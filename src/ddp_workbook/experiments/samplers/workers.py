"""DataLoader workers: who makes a batch, with which random numbers, and what workers buy."""

import os
import time

import pandas as pd
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.launcher.launch import launch
from ddp_workbook.recording.timing import compare

SAMPLE_SECONDS, STEP_SECONDS = 0.005, 0.01
SAMPLES, BATCH_SIZE = 32, 4  # of the data set, and of one rank's loader
NO_WORKERS = "no workers"
WAYS = {
    NO_WORKERS: {},
    "1 worker, kept": {"num_workers": 1, "persistent_workers": True},
    "2 workers, kept": {"num_workers": 2, "persistent_workers": True},
    "2 workers, new in each epoch": {"num_workers": 2},
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
        timed = compare({n: lambda one=one: epoch(one) for n, one in loaders.items()}, rounds)
        tables.append(timed.assign(kind=kind))
        del loaders  # ends the workers that were kept
    cleanup()
    return pd.concat(tables, ignore_index=True)


def epoch_times(ranks: int = 2, rounds: int = 3) -> pd.DataFrame:
    """kind, candidate (one of `WAYS`), round, seconds: an epoch of all ranks together."""
    return launch(time_epochs, rounds, ranks=ranks)[0]
