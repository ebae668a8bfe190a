"""The arguments of the DataLoader: defaults as installed, with our words."""

import pandas as pd
from torch.utils.data import DataLoader

from ddp_workbook.experiments.arguments import explained

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
    return explained(DataLoader, LOADER)
