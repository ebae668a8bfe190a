"""An IterableDataset on several ranks with several DataLoader workers: who reads what."""

from collections.abc import Callable, Iterator
from itertools import islice

import pandas as pd
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.launcher.launch import launch

SAMPLES = 24


class Stream(IterableDataset):
    """The numbers 0 to 23, as if they came over a network one after the other."""

    def __init__(self, cut: Callable) -> None:
        self.cut = cut
        # Asked here, in the rank: a DataLoader worker that is not forked is in no process group.
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def __iter__(self) -> Iterator[int]:
        return self.cut(iter(range(SAMPLES)), self.rank, self.world_size)


def uncut(stream: Iterator[int], rank: int, world_size: int) -> Iterator[int]:
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


CUTS = {
    "not cut": uncut,
    "cut by rank": by_rank,
    "cut by rank and DataLoader worker": by_rank_and_worker,
}


def read_all(num_workers: int) -> dict[str, list[int]]:
    """For each of `CUTS`, the samples that this rank's loader brought."""
    setup()
    found = {}
    for name, cut in CUTS.items():
        loader = DataLoader(Stream(cut), batch_size=2, num_workers=num_workers)
        found[name] = [sample for batch in loader for sample in batch.tolist()]
    cleanup()
    return found


def who_reads_what(ranks: int = 2, num_workers: int = 2) -> pd.DataFrame:
    """A row for each of `CUTS`: how many samples came, and how often each of the 24."""
    of_ranks = launch(read_all, num_workers, ranks=ranks)
    rows = {}
    for name in CUTS:
        times = pd.Series([s for found in of_ranks for s in found[name]]).value_counts()
        rows[name] = {
            "different samples": len(times),
            "samples that came": int(times.sum()),
            "times each": " or ".join(map(str, sorted(times.unique()))),
        }
    return pd.DataFrame(rows).T
