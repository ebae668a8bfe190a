"""Who gets which samples: the samples are numbers, so that a rank can say what it got."""

import pandas as pd
from torch.utils.data import DataLoader, DistributedSampler

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.experiments.samplers.samples import sample_table
from ddp_workbook.launcher.launch import launch


def received(samples: int, epochs: int = 1, set_epoch: bool = True, **of_sampler) -> list:
    """For each epoch, the samples that this rank's loader gave out, in order."""
    setup()
    sampler = DistributedSampler(range(samples), **of_sampler)
    loader = DataLoader(range(samples), batch_size=2, sampler=sampler)
    seen = []
    for epoch in range(epochs):
        if set_epoch:
            sampler.set_epoch(epoch)
        seen.append([sample for batch in loader for sample in batch.tolist()])
    return seen  # without cleanup(), whose barrier would be a message


def dealt(samples: int, ranks: int, **arguments) -> pd.DataFrame:
    """A row for each sample that a rank received: epoch, rank, place, sample.

    The arguments are those of `received`.
    """
    of_ranks = launch(received, samples, ranks=ranks, **arguments)
    return sample_table(dict(enumerate(zip(*of_ranks, strict=True))))


def shares(sizes: list[int], ranks: int) -> pd.DataFrame:
    """For data sets of these sizes, what all `ranks` get together: padded, and with drop_last."""
    rows = []
    for size in sizes:
        padded, dropped = (
            ranks * len(DistributedSampler(range(size), ranks, rank=0, drop_last=drop))
            for drop in (False, True)
        )
        rows.append((size, padded, padded - size, dropped, size - dropped))
    columns = ["samples", "given out", "twice", "given out, drop_last", "to nobody"]
    return pd.DataFrame(rows, columns=columns).set_index("samples")
