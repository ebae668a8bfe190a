"""A job that stops in the middle of an epoch: who got what before, and who gets what after it."""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.experiments.samplers.assignments import sample_table
from manyranks.launcher.launch import launch

SAMPLES = 24
BEFORE, AFTER, TOGETHER = "before the stop", "after it", "together"
PARTS = (BEFORE, AFTER)  # rows of the pictures that are not a whole epoch


class Stop(NamedTuple):
    """`ranks` make `steps`, then `new_ranks` come back, and each skips `skip` batches."""

    ranks: int
    steps: int
    new_ranks: int
    skip: int


STOPS = {
    "4 ranks come back and start the epoch again": Stop(4, 1, 4, 0),
    "4 ranks come back, each skips 1 batch": Stop(4, 1, 4, 1),
    "2 ranks come back, each skips 1 batch": Stop(4, 1, 2, 1),
    "2 ranks made 2 steps, 4 come back, each skips 2 batches": Stop(2, 2, 4, 2),
}


def some_batches(skip: int, stop: int | None = None) -> list[int]:
    """The samples of this rank's batches from number `skip` to before `stop`."""
    setup()
    sampler = DistributedSampler(range(SAMPLES), shuffle=False)
    loader = DataLoader(range(SAMPLES), batch_size=2, sampler=sampler)
    samples = [sample for batch in list(loader)[skip:stop] for sample in batch.tolist()]
    cleanup()
    return samples


def samples_around_stop(case: Stop) -> pd.DataFrame:
    """Who got which sample before the stop, after it, and together."""
    before = launch(some_batches, 0, case.steps, ranks=case.ranks)
    after = launch(some_batches, case.skip, ranks=case.new_ranks)
    parts = sample_table({BEFORE: before, AFTER: after})
    return pd.concat([parts, parts.assign(epoch=TOGETHER)], ignore_index=True)


def coverage_table(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """For each case, how many of the samples the epoch never used, and how many twice."""
    rows = {}
    for name, table in tables.items():
        together = table.loc[table["epoch"] == TOGETHER, "sample"]
        rows[name] = (SAMPLES - together.nunique(), int(together.duplicated().sum()))
    return pd.DataFrame(rows, ["never", "twice"]).T


class CountingSampler(DistributedSampler):
    """A sampler that counts the samples that it has given out."""

    def __iter__(self) -> Iterator[int]:
        self.count = 0
        for sample in super().__iter__():
            self.count += 1
            yield sample


def samples_before_first_batch(num_workers: int) -> int:
    """How many samples the sampler has given out when the loop gets its first batch of two."""
    setup()
    sampler = CountingSampler(range(48))
    loader = DataLoader(range(48), batch_size=2, sampler=sampler, num_workers=num_workers)
    next(iter(loader))
    cleanup()
    return sampler.count
