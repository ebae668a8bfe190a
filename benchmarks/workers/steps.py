"""A training step of the DDP chapter, and the same training written down as barely as can be.

Every loop trains the chapter's model on the chapter's batches, and notes the clock at each step.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters import distributed_data_parallel as chapter
from ddp_workbook.digits import DigitsDataset, DigitsMLP, batches

WARM_UP = 5  # steps of each epoch that do not count: DDP rebuilds its buckets after the first
Ticks = list[float]


def compare_loops(rounds: int, width: int, depth: int, batch_size: int) -> dict[str, list[float]]:
    """Median seconds of a step, one an epoch, of the three loops in turns in the same ranks."""
    device, digits = chapter.setup(), DigitsDataset()
    loops = {
        "chapter": lambda: chapter_epoch(digits, device, width, depth, batch_size),
        "barest": lambda: bare_epoch(already_cut(digits, batch_size), width, depth),
        "barest and batches": lambda: bare_epoch(cut(digits, batch_size), width, depth),
    }
    times: dict[str, list[float]] = {name: [] for name in loops}
    names = list(loops)
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds = median_step(loops[name]())
            if number >= 0:
                times[name].append(seconds)
    chapter.cleanup()
    return times


def bare_loop(epochs: int, width: int, depth: int, batch_size: int) -> list[float]:
    """Median seconds of a step, one an epoch, of the barest loop alone."""
    torch.set_num_threads(1)
    chapter.setup()
    mine = already_cut(DigitsDataset(), batch_size)
    times = [median_step(bare_epoch(mine, width, depth)) for _ in range(epochs + 1)]
    chapter.cleanup()
    return times[1:]


def bare_epoch(mine: Iterable[tuple[Tensor, Tensor]], width: int, depth: int) -> Ticks:
    """What nobody can leave out: zero_grad, forward, loss, backward through DDP, step."""
    torch.manual_seed(chapter.SEED)
    ddp = DistributedDataParallel(DigitsMLP(width, depth))
    optimizer = torch.optim.SGD(
        ddp.parameters(), lr=chapter.LEARNING_RATE, momentum=chapter.MOMENTUM
    )
    ticks = []
    for images, labels in mine:
        ticks.append(time.perf_counter())
        optimizer.zero_grad()
        F.cross_entropy(ddp(images), labels).backward()
        optimizer.step()
    ticks.append(time.perf_counter())
    return ticks


def chapter_epoch(
    digits: DigitsDataset, device: torch.device, width: int, depth: int, batch_size: int
) -> Ticks:
    """One epoch of the chapter's own `train`, with the clock read whenever it asks for a batch."""
    ticks: Ticks = []

    def clocked_batches(*args) -> Iterator[tuple[Tensor, Tensor]]:
        ticks.append(time.perf_counter())
        for batch in full_batches(*args):
            yield batch
            ticks.append(time.perf_counter())

    replaced = {
        "setup": lambda: device,  # the group is there already, and stays
        "cleanup": lambda: None,
        "DigitsDataset": lambda: digits,
        "batches": clocked_batches,
    }
    with stand_ins(replaced):
        chapter.train(epochs=1, width=width, depth=depth, batch_size=batch_size)
    return ticks


@contextmanager
def stand_ins(replaced: dict[str, Callable]) -> Iterator[None]:
    """The chapter's module with other functions under these names; put back afterwards."""
    originals = {name: getattr(chapter, name) for name in replaced}
    vars(chapter).update(replaced)
    try:
        yield
    finally:
        vars(chapter).update(originals)


def full_batches(
    digits: DigitsDataset, batch_size: int, epoch: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """The chapter's batches but for the last, which is smaller, so that all steps are alike."""
    for images, labels in batches(digits, batch_size, epoch):
        if len(images) == batch_size:
            yield images, labels


def cut(digits: DigitsDataset, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's rows of each batch, picked as the chapter picks them."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    for images, labels in full_batches(digits, batch_size):
        yield images[mine], labels[mine]


def already_cut(digits: DigitsDataset, batch_size: int) -> list[tuple[Tensor, Tensor]]:
    """The same rows, ready in memory before the clock starts."""
    return [(images.contiguous(), labels) for images, labels in cut(digits, batch_size)]


def median_step(ticks: Ticks) -> float:
    """Seconds of the middle one of the steps that count."""
    return median(after - before for before, after in list(pairwise(ticks))[WARM_UP:])
