"""The arguments of DistributedSampler and DataLoader: defaults as installed, with our words."""

import inspect

import pandas as pd
from torch.utils.data import DataLoader, DistributedSampler

SAMPLER = {
    "dataset": "only its length is asked for",
    "num_replicas": "the world size; None asks the process group",
    "rank": "whose samples these are; None asks the process group",
    "shuffle": "a new order for each epoch, if set_epoch is called",
    "seed": "of the order; the same on all ranks",
    "drop_last": "make the shares equal by leaving samples out, not by repeating some",
}
LOADER = {
    "dataset": "what the samples are taken from, by number or (IterableDataset) one by one",
    "batch_size": "rows of one rank's batch; the global batch is that times the world size",
    "shuffle": "shuffle, in one process; an error if there is a sampler, which makes the order",
    "sampler": "which samples, in which order: a DistributedSampler",
    "batch_sampler": "a sampler of whole batches; not with batch_size, shuffle, sampler, drop_last",
    "num_workers": "processes that load for this rank; 0: the rank loads itself",
    "collate_fn": "makes a batch from a list of samples; here texts are filled up to one length",
    "pin_memory": "copy each batch into pinned memory (see below), from which a GPU can fetch it",
    "drop_last": "leave out this rank's last batch if it is too short",
    "timeout": "seconds to wait for a worker's batch before an error is raised; 0: no limit",
    "worker_init_fn": "called in each new worker, with its number",
    "multiprocessing_context": "how workers are started: fork, spawn or forkserver",
    "generator": "draws the seed of the workers, and the order if shuffle=True; None: torch's own",
    "prefetch_factor": "batches that each worker makes ahead; None: 2",
    "persistent_workers": "keep the workers from one epoch to the next",
    "pin_memory_device": "deprecated: the loader finds the accelerator itself",
    "in_order": "hand out the batches in their order, even if a later one is ready first",
}


def argument_table(of: type) -> pd.DataFrame:
    """argument, default, what it does: DistributedSampler's or DataLoader's, as installed."""
    words = {DistributedSampler: SAMPLER, DataLoader: LOADER}[of]
    rows = []
    for name, parameter in inspect.signature(of).parameters.items():
        required = parameter.default is inspect.Parameter.empty
        default = "(required)" if required else repr(parameter.default)
        rows.append((name, default, words.get(name, "newer than this page")))
    return pd.DataFrame(rows, columns=["argument", "default", "what it does"])
