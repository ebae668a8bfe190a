"""Workers for what chapter 04 says of samplers, loaders and uneven shares."""

import os
import random
import warnings
from unittest import mock

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, get_worker_info

from ddp_workbook.chapters import samplers
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup


def some_digits(count: int) -> DigitsDataset:
    """The first digits of the workbook's table."""
    digits = DigitsDataset()
    digits.images, digits.labels = digits.images[:count], digits.labels[:count]
    return digits


def accuracy(count: int, **of_sampler) -> float:
    """The chapter's accuracy of an untrained model on `count` digits."""
    device, digits = setup(), some_digits(count)
    torch.manual_seed(0)
    model = DigitsMLP().to(device)
    loader = DataLoader(digits, sampler=DistributedSampler(digits, **of_sampler))
    return samplers.accuracy_over_ranks(model, loader, device)


class TracedSamples:
    """Samples that tell which process made them, and what its random numbers are."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, sample: int) -> dict:
        return {
            "sample": sample,
            "process": os.getpid(),
            "torch": torch.rand(1).item(),
            "numpy": numpy.random.rand(),
            "python": random.random(),
            "threads": torch.get_num_threads(),
        }


def traced_batches(own_seed: bool) -> list[list[dict]]:
    """The batches of two workers; the rank is seeded with 0, or with its number."""
    setup()
    torch.manual_seed(dist.get_rank() if own_seed else 0)
    sampler = DistributedSampler(TracedSamples())
    return list(DataLoader(TracedSamples(), 2, sampler=sampler, num_workers=2, collate_fn=list))


def epochs_of_persistent_workers() -> list[list[int]]:
    """Two epochs with set_epoch, of workers that stay."""
    setup()
    sampler = DistributedSampler(range(12))
    loader = DataLoader(range(12), sampler=sampler, num_workers=1, persistent_workers=True)
    epochs = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        epochs.append([batch.item() for batch in loader])
    return epochs


def warnings_of_a_loader(num_workers: int) -> list[str]:
    """What a loader with so many workers says on a machine that seems to have two cores."""
    setup()
    sampler = DistributedSampler(range(4))
    with (
        warnings.catch_warnings(record=True) as messages,
        mock.patch.object(os, "sched_getaffinity", lambda _: {0, 1}, create=True),
        mock.patch.object(os, "cpu_count", lambda: 2),
    ):
        warnings.simplefilter("always")
        list(DataLoader(range(4), sampler=sampler, num_workers=num_workers))
    # from Python 3.12 on, every fork of a process with threads warns, and gloo has threads
    return [str(w.message) for w in messages if w.category is not DeprecationWarning]


def gradients_of_two_epochs(batches: list[tuple[int, int]]) -> list[float]:
    """What this rank finds in .grad; batches[r] are rank r's numbers of batches in two epochs."""
    device, rank, gradients = setup(), dist.get_rank(), []
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False).to(device))
    for epoch, count in enumerate(batches[rank]):
        for _ in range(count):
            ddp.zero_grad()
            ddp(torch.full((1, 1), 1.0 + 10 * epoch, device=device)).sum().backward()
            gradients.append(ddp.module.weight.grad.item())
    del ddp
    cleanup()
    return gradients


class CutByWorker(IterableDataset):
    """Ten numbers, of which each worker takes every num_workers-th."""

    def __iter__(self):
        worker = get_worker_info()
        return iter(range(10)[worker.id :: worker.num_workers] if worker else range(10))


class Epochs(IterableDataset):
    """A stream of one number: the epoch that was set."""

    epoch = 0

    def __iter__(self):
        yield self.epoch


class AsksForItsRank(IterableDataset):
    """A stream of one number, the rank, as the process that reads knows it."""

    def __iter__(self):
        yield dist.get_rank()


def rank_in_a_worker(start_method: str) -> str:
    """What a worker says that is started in this way and asks for its rank."""
    setup()
    options = {"num_workers": 1, "multiprocessing_context": start_method}
    try:
        return str(list(DataLoader(AsksForItsRank(), batch_size=None, **options)))
    except ValueError as error:
        return str(error)
