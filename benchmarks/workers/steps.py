"""A training step of the DDP chapter, and the same training as a minimal loop.

Every loop trains the chapter's model on the chapter's batches.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters import distributed_data_parallel as chapter
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, batches

WARM_UP = 3  # steps of each epoch that do not count: DDP rebuilds its buckets after the first
BAREST, READY = "the barest loop", "the barest loop, rows ready"
Rows = tuple[Tensor, Tensor]  # images and labels
Seconds = dict[str, list[float]]


class BareLoop:
    """The necessary parts of a step: zero_grad, forward, loss, backward by DDP, update."""

    def __init__(self, width: int, depth: int):
        torch.manual_seed(chapter.SEED)
        self.ddp = DistributedDataParallel(DigitsMLP(width, depth))
        self.optimizer = torch.optim.SGD(
            self.ddp.parameters(), lr=chapter.LEARNING_RATE, momentum=chapter.MOMENTUM
        )

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One step on this rank's rows."""
        self.optimizer.zero_grad()
        F.cross_entropy(self.ddp(images), labels).backward()
        self.optimizer.step()


def compare_loops(epochs: int, width: int, depth: int, batch_size: int) -> Seconds:
    """For each loop the median seconds of a step in each epoch; the loops take turns by step."""
    device, digits = chapter.setup(), DigitsDataset()
    medians: Seconds = {}
    for epoch in range(epochs + 1):
        seconds = one_epoch(digits, device, width, depth, batch_size)
        for loop, steps in seconds.items() if epoch else ():
            medians.setdefault(loop, []).append(median(steps[WARM_UP:]))
    chapter.cleanup()
    return medians


def one_epoch(
    digits: DigitsDataset, device: torch.device, width: int, depth: int, batch_size: int
) -> Seconds:
    """The chapter's own `train`; whenever it asks for a batch, the other loops do their step."""
    seconds: Seconds = {"chapter": [], READY: [], BAREST: []}
    ready, barest = BareLoop(width, depth), BareLoop(width, depth)
    rows, own = rows_in_memory(digits, batch_size), my_rows(digits, batch_size)
    other_loops = {
        READY: lambda step: ready.step(*rows[step]),
        BAREST: lambda step: barest.step(digits.images[own[step]], digits.labels[own[step]]),
    }

    def batches_in_turns(*args) -> Iterator[Rows]:
        source = full_batches(*args)
        for step in range(len(rows)):
            start = together()
            yield next(source)  # the chapter does its step, then asks for the next batch
            seconds["chapter"].append(time.perf_counter() - start)
            for loop in sorted(other_loops, reverse=bool(step % 2)):  # in turns
                start = together()
                other_loops[loop](step)
                seconds[loop].append(time.perf_counter() - start)

    substitutes = {
        "setup": lambda: device,  # the group exists already, and stays
        "cleanup": lambda: None,
        "DigitsDataset": lambda: digits,
        "batches": batches_in_turns,
    }
    with stand_ins(substitutes):
        chapter.train(epochs=1, width=width, depth=depth, batch_size=batch_size)
    return seconds


def bare_loop(epochs: int, width: int, depth: int, batch_size: int) -> list[float]:
    """Only the barest loop: median seconds of a step in each epoch."""
    torch.set_num_threads(1)
    chapter.setup()
    rows, loop, medians = rows_in_memory(DigitsDataset(), batch_size), BareLoop(width, depth), []
    for _ in range(epochs + 1):
        steps = []
        for mine in rows:
            start = together()
            loop.step(*mine)
            steps.append(time.perf_counter() - start)
        medians.append(median(steps))
    chapter.cleanup()
    return medians[1:]


def together() -> float:
    """The time once all ranks are here, so that no loop pays for another's straggler."""
    dist.barrier()
    return time.perf_counter()


@contextmanager
def stand_ins(substitutes: dict[str, Callable]) -> Iterator[None]:
    """Replace functions of the chapter's module inside the block."""
    originals = {name: getattr(chapter, name) for name in substitutes}
    vars(chapter).update(substitutes)
    try:
        yield
    finally:
        vars(chapter).update(originals)


def full_batches(digits: DigitsDataset, batch_size: int, epoch: int) -> Iterator[Rows]:
    """The chapter's batches except the last, smaller one, so that all steps are alike."""
    for images, labels in batches(digits, batch_size, epoch):
        if len(images) == batch_size:
            yield images, labels


def my_rows(digits: DigitsDataset, batch_size: int) -> list[Tensor]:
    """The indices of this rank's rows in each full batch of the chapter's first epoch."""
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(chapter.SEED))
    full = [rows for rows in order.split(batch_size) if len(rows) == batch_size]
    return [rows[dist.get_rank() :: dist.get_world_size()] for rows in full]


def rows_in_memory(digits: DigitsDataset, batch_size: int) -> list[Rows]:
    """The same rows, in memory of their own before any clock starts."""
    return [(digits.images[mine], digits.labels[mine]) for mine in my_rows(digits, batch_size)]
