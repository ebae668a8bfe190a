"""The workers behind the timings: each runs in ranks of its own and returns seconds.

A step is the chapter's own `forward_and_backward` with `zero_grad` before and the optimizer after,
on the first rows of the digits, moved to the device within the step as a training loop does.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters import data_parallel, distributed_data_parallel, single_process
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.recording.timing import synchronise, time_step

WARM_UP = 2  # DDP sends one bucket in its first step and rebuilds the buckets for its second
REPEATS = (2, 200)  # at least and at most this many steps, whatever the time they take
# Functions of data_parallel.py, and what the time in them is called.
OPERATIONS = {name: name for name in ("replicate", "scatter", "gather")}
OPERATIONS["parallel_apply"] = "compute"
ORDER = ("replicate", "scatter", "compute", "gather")


class Size(NamedTuple):
    """What is trained: hidden layers of `width` units, `depth` of them, `batch` rows a step."""

    width: int
    depth: int
    batch: int


def one_process(sizes: Sequence[Size], seconds: float) -> list[list[float]]:
    """For each size the seconds of single_process.py's steps, as many as fit into `seconds`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return [_timed(_one_process(size, device), device, seconds) for size in sizes]


def replicas(sizes: Sequence[Size], seconds: float, count: int) -> list[list[float]]:
    """For each size the seconds of data_parallel.py's steps with `count` replicas."""
    devices = data_parallel.pick_devices(count)
    return [_timed(_replicas(size, devices), devices[0], seconds) for size in sizes]


def ranks(sizes: Sequence[Size], seconds: float) -> list[list[float]]:
    """For each size the seconds of distributed_data_parallel.py's steps, as this rank saw them."""
    device = distributed_data_parallel.setup()
    taken = [_timed(_step(*_ddp(size, device)), device, seconds) for size in sizes]
    dist.barrier()  # and no cleanup: a gloo group should not end before its DDP models (torch 2.13)
    return taken


def parts_of_replicas(sizes: Sequence[Size], seconds: float, count: int) -> list[dict[str, float]]:
    """For each size the median seconds of the four operations in a step, and of the rest."""
    devices = data_parallel.pick_devices(count)
    return [_parts_of_replicas(size, seconds, devices) for size in sizes]


def _parts_of_replicas(size: Size, seconds: float, devices: list) -> dict[str, float]:
    module, names, rest = data_parallel, OPERATIONS, "optimizer"
    if devices[0].type == "cuda":  # nn.DataParallel calls functions of its own module
        module = importlib.import_module("torch.nn.parallel.data_parallel")
        names, rest = OPERATIONS | {"scatter_kwargs": "scatter"}, "backward and optimizer"
        del names["scatter"]
    with _clocks(module, names, devices) as clocks:
        whole = _timed(_replicas(size, devices), devices[0], seconds)
    parts = {part: median(clocks[part][-len(whole) :]) for part in ORDER}
    return parts | {rest: max(0.0, median(whole) - sum(parts.values()))}


def parts_of_ranks(sizes: Sequence[Size], seconds: float) -> list[list[tuple[float, ...]]]:
    """For each size, a tuple a step: seconds of synchronised work, of work alone, of the optimizer.

    Work is forward and backward. Alone, it runs under `no_sync`, in turns with synchronised steps.
    """
    device = distributed_data_parallel.setup()
    taken = [_parts_of_ranks(size, seconds, device) for size in sizes]
    dist.barrier()
    return taken


def _parts_of_ranks(size: Size, seconds: float, device: torch.device) -> list[tuple[float, ...]]:
    ddp, work = _ddp(size, device)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=single_process.LEARNING_RATE)
    taken = []

    def step() -> None:
        dist.barrier()  # else one rank would start while the other is still busy
        together = _clock(work, device)
        update = _clock(lambda: (optimizer.step(), optimizer.zero_grad()), device)
        dist.barrier()
        with ddp.no_sync():  # around forward too: around backward alone it has no effect
            alone = _clock(work, device)
        optimizer.zero_grad()
        taken.append((together, alone, update))

    _timed(step, device, seconds)
    return taken[WARM_UP:]


@cache  # read once a process, not once a size
def _digits() -> DigitsDataset:
    return DigitsDataset()


def _training(size: Size, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(single_process.SEED)
    digits = _digits()
    rows = torch.arange(size.batch) % len(digits)  # a batch may be larger than the data set
    model = DigitsMLP(size.width, size.depth).to(device)
    return model, digits.images[rows], digits.labels[rows]


def _one_process(size: Size, device: torch.device) -> Callable[[], None]:
    model, images, labels = _training(size, device)
    return _step(
        model,
        lambda: single_process.forward_and_backward(model, images.to(device), labels.to(device)),
    )


def _replicas(size: Size, devices: list[torch.device]) -> Callable[[], None]:
    model, images, labels = _training(size, devices[0])
    return _step(model, lambda: data_parallel.forward_and_backward(model, images, labels, devices))


def _ddp(size: Size, device: torch.device) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The DDP model, and forward and backward of this rank's rows of the batch."""
    model, images, labels = _training(size, device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return ddp, lambda: distributed_data_parallel.forward_and_backward(
        ddp, images[mine].to(device), labels[mine].to(device), size.batch
    )


def _step(model: nn.Module, work: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=single_process.LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        work()
        optimizer.step()

    return step


def _timed(step: Callable[[], object], device: torch.device, seconds: float) -> list[float]:
    """Time as many steps as fit into `seconds`; on ranks of a group, all take the same number."""
    guess = time_step(step, warm_up=WARM_UP - 1, repeats=1, device=device)[0]
    repeats = torch.tensor(min(max(REPEATS[0], int(seconds / guess)), REPEATS[1]), device=device)
    if dist.is_initialized():
        dist.broadcast(repeats, src=0)
    return time_step(step, warm_up=0, repeats=int(repeats), device=device)


def _clock(work: Callable[[], object], device: torch.device) -> float:
    return time_step(work, warm_up=0, repeats=1, device=device)[0]


@contextlib.contextmanager
def _clocks(module, names: dict[str, str], devices: list) -> Iterator[dict[str, list[float]]]:
    """Time every call of the named functions of `module`, by part; they are put back afterwards."""
    originals = {name: getattr(module, name) for name in names}
    times: dict[str, list[float]] = {part: [] for part in names.values()}

    def clocked(name: str) -> Callable:
        def call(*args, **kwargs):
            start = _now(devices)
            result = originals[name](*args, **kwargs)
            times[names[name]].append(_now(devices) - start)
            return result

        return call

    for name in names:
        setattr(module, name, clocked(name))
    try:
        yield times
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _now(devices: list[torch.device]) -> float:
    for device in devices:
        synchronise(device)
    return time.perf_counter()
