"""The workers behind the timings: each runs in ranks of its own and returns seconds.

A step is the chapter's own `forward_and_backward` with `zero_grad` before and the optimizer after,
on the first rows of the digits, moved to the device within the step as a training loop does.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters import data_parallel, distributed_data_parallel, single_process
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.workbench.timing import synchronise, time_step

WARM_UP = 3  # DDP sends one bucket in its first step and rebuilds the buckets for its second
REPEATS = (3, 200)  # at least and at most this many steps, whatever the time they take


class Size(NamedTuple):
    """What is trained: hidden layers of `width` units, `depth` of them, `batch` rows a step."""

    width: int
    depth: int
    batch: int


def one_process(size: Size, seconds: float) -> list[float]:
    """Seconds of each step of single_process.py, for about `seconds`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, images, labels = _training(size, device)
    return _timed(_step(model, lambda: single_process.forward_and_backward(
        model, images.to(device), labels.to(device))), device, seconds)


def replicas(size: Size, seconds: float, count: int) -> list[float]:
    """Seconds of each step of data_parallel.py with `count` replicas."""
    devices = data_parallel.pick_devices(count)
    model, images, labels = _training(size, devices[0])
    return _timed(_step(model, lambda: data_parallel.forward_and_backward(
        model, images, labels, devices)), devices[0], seconds)


def ranks(size: Size, seconds: float) -> list[float]:
    """Seconds of each step of distributed_data_parallel.py, as this rank saw them."""
    device, ddp, work = _joined(size)
    taken = _timed(_step(ddp, work), device, seconds)
    distributed_data_parallel.cleanup()
    return taken


def parts_of_replicas(size: Size, seconds: float, count: int) -> dict[str, float]:
    """Median seconds of the four operations in a step of data_parallel.py, and of the rest."""
    devices = data_parallel.pick_devices(count)
    model, images, labels = _training(size, devices[0])
    step = _step(model, lambda: data_parallel.forward_and_backward(model, images, labels, devices))
    on_gpus = devices[0].type == "cuda"
    names = {"replicate": "replicate", "scatter": "scatter", "parallel_apply": "compute",
             "gather": "gather"}
    module = data_parallel
    if on_gpus:  # nn.DataParallel calls functions of its own module
        module = importlib.import_module("torch.nn.parallel.data_parallel")
        names = {"scatter_kwargs" if name == "scatter" else name: part
                 for name, part in names.items()}
    with _clocks(module, names, devices) as clocks:
        whole = _timed(step, devices[0], seconds)
    parts = {part: median(times[-len(whole):]) for part, times in clocks.items()}
    order = ["replicate", "scatter", "compute", "gather"]
    rest = max(0.0, median(whole) - sum(parts.values()))
    return {part: parts[part] for part in order} | {
        "backward and optimizer" if on_gpus else "optimizer": rest}


def parts_of_ranks(size: Size, seconds: float) -> list[tuple[float, float, float]]:
    """(compute and all-reduce, compute alone, optimizer) seconds of each step on this rank.

    Compute alone is forward and backward under `no_sync`, in turns with synchronised steps.
    """
    device, ddp, work = _joined(size)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=single_process.LEARNING_RATE)
    clock = partial(_clock, device)

    def step() -> tuple[float, float, float]:
        both = clock(work)
        update = clock(lambda: (optimizer.step(), optimizer.zero_grad()))
        dist.barrier()  # else one rank would start its next part while the other is still busy
        with ddp.no_sync():  # around forward too: around backward alone it has no effect
            alone = clock(work)
        optimizer.zero_grad()
        dist.barrier()
        return both, alone, update

    taken = []
    _timed(lambda: taken.append(step()), device, seconds)
    distributed_data_parallel.cleanup()
    return taken[WARM_UP:]


def _training(size: Size, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(single_process.SEED)
    digits = DigitsDataset()
    rows = torch.arange(size.batch) % len(digits)  # a batch may be larger than the data set
    model = DigitsMLP(size.width, size.depth).to(device)
    return model, digits.images[rows], digits.labels[rows]


def _joined(size: Size) -> tuple[torch.device, nn.Module, Callable[[], Tensor]]:
    """This rank's device, its DDP model, and forward and backward of its rows of the batch."""
    device = distributed_data_parallel.setup()
    model, images, labels = _training(size, device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    mine = slice(dist.get_rank(), None, dist.get_world_size())

    def work() -> Tensor:
        return distributed_data_parallel.forward_and_backward(
            ddp, images[mine].to(device), labels[mine].to(device), size.batch)

    return device, ddp, work


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


def _clock(device: torch.device, work: Callable[[], object]) -> float:
    return time_step(work, warm_up=0, repeats=1, device=device)[0]


@contextlib.contextmanager
def _clocks(module, names: dict[str, str], devices: list) -> Iterator[dict[str, list[float]]]:
    """Time every call of the named functions of `module`, by part; they are put back afterwards."""
    originals = {name: getattr(module, name) for name in names}
    times: dict[str, list[float]] = {part: [] for part in names.values()}

    def clocked(name: str) -> Callable:
        def call(*args, **kwargs):
            for device in devices:
                synchronise(device)
            start = time.perf_counter()
            result = originals[name](*args, **kwargs)
            for device in devices:
                synchronise(device)
            times[names[name]].append(time.perf_counter() - start)
            return result
        return call

    for name in names:
        setattr(module, name, clocked(name))
    try:
        yield times
    finally:
        for name, original in originals.items():
            setattr(module, name, original)
