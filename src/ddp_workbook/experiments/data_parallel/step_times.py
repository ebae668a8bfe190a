"""Chapter 01's timings: DataParallel, or its stand-in, against one process.

A step is the chapter's own `forward_and_backward`, with `zero_grad` before and the optimizer after,
on the first rows of the digits. The step moves them to the device, as a training loop does.

Every timing runs in fresh processes, so the notebook kernel's thread settings do not matter. The
candidates take turns, so a busy machine slows all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.page.machine import machine_name
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.limits import usable_cores
from manyranks.recording.timing import compare, synchronise, time_step

WORKERS = 2  # replicas here, ranks in chapter 02
WARM_UP = 2  # DDP sends one bucket in its first step and rebuilds the buckets for its second
REPEATS = (2, 200)  # at least and at most this many steps, however long they take
# Functions of data_parallel.py, and the part of a step that each of them is.
OPERATIONS = {"replicate": "replicate", "scatter": "scatter", "parallel_apply": "compute"}
OPERATIONS["add_gradients"] = "gather"  # the stand-in's own gather adds four numbers
ORDER = ("replicate", "scatter", "compute", "gather")


class Size(NamedTuple):
    """What is trained: hidden layers of `width` units, `depth` of them, `batch` rows a step."""

    width: int
    depth: int
    batch: int


# Measurements


def candidates(sizes: Sequence[Size], seconds: float) -> dict[str, Callable[[], list[float]]]:
    """The ways of training to compare; each returns its seconds a step for every size."""
    alone = partial(median_steps, one_process, sizes, seconds)
    in_parallel = partial(median_steps, replicas, sizes, seconds, WORKERS)
    if on_gpus():
        return {"one GPU": alone, candidate_name(): in_parallel}
    threads = dict.fromkeys((1, usable_cores()))  # one entry on one core
    single = {f"one process, {n} thread{'s' * (n > 1)}": partial(alone, threads=n) for n in threads}
    return {**single, candidate_name(): partial(in_parallel, threads=WORKERS)}


def step_times(
    candidates: Mapping[str, Callable], sizes: Sequence[Size], rounds: int, budget: float
) -> pd.DataFrame:
    """The candidates' seconds a step, taken in turns, as a table with size and machine."""
    frame = compare(candidates, rounds, warm_up=0, budget=budget)
    return with_sizes(frame, sizes, frame.groupby(["candidate", "round"]).cumcount())


def with_sizes(frame: pd.DataFrame, sizes: Sequence[Size], index: pd.Series) -> pd.DataFrame:
    """The table, sorted by size, with the size in its first columns and the machine in its last."""
    columns = pd.DataFrame([sizes[i] for i in index], columns=Size._fields, index=frame.index)
    frame = pd.concat([columns, frame], axis=1).assign(machine=machine_name(gpus=on_gpus()))
    return frame.iloc[index.argsort(kind="stable")].reset_index(drop=True)


def median_steps(
    worker: Callable, *args, ranks: int = 1, threads: int | None = None
) -> list[float]:
    """For each size the median step of a launch; a step takes as long as on its slowest rank."""
    of_sizes = zip(*in_fresh_processes(worker, *args, ranks=ranks, threads=threads), strict=True)
    return [median(map(max, zip(*of_ranks, strict=True))) for of_ranks in of_sizes]


def in_fresh_processes(worker: Callable, *args, ranks: int = 1, threads: int | None = None) -> list:
    """What the worker returned on each rank."""
    # A single GPU is hidden from all candidates: two replicas or ranks could not use it.
    hidden = {} if on_gpus() else {"CUDA_VISIBLE_DEVICES": ""}
    return run_ranks(
        Call(worker, args), ranks, 300, quiet=True, threads=threads, environment=hidden
    )


def on_gpus() -> bool:
    """Whether there is a GPU for each replica, or rank."""
    return torch.cuda.device_count() >= WORKERS


def candidate_name() -> str:
    """What DataParallel is called in the tables: on CPUs it is the stand-in."""
    if on_gpus():
        return f"DataParallel, {WORKERS} GPUs"
    return f"DataParallel, {WORKERS} replicas (stand-in: CPU threads)"


# Workers: each runs in a process of its own


def one_process(sizes: Sequence[Size], seconds: float) -> list[list[float]]:
    """For each size the seconds of single_process.py's steps, as many as fit into `seconds`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return [time_steps(_one_process(size, device), device, seconds) for size in sizes]


def replicas(sizes: Sequence[Size], seconds: float, count: int) -> list[list[float]]:
    """For each size the seconds of data_parallel.py's steps with `count` replicas."""
    devices = data_parallel.pick_devices(count)
    return [time_steps(_replicas(size, devices), devices[0], seconds) for size in sizes]


def parts_of_replicas(sizes: Sequence[Size], seconds: float, count: int) -> list[dict[str, float]]:
    """For each size the median seconds of the four operations of a step, and of the rest."""
    devices = data_parallel.pick_devices(count)
    return [_parts_of_replicas(size, seconds, devices) for size in sizes]


def _parts_of_replicas(size: Size, seconds: float, devices: list) -> dict[str, float]:
    module, names, rest = data_parallel, OPERATIONS, "optimizer"
    if devices[0].type == "cuda":  # nn.DataParallel calls functions of its own module
        module = importlib.import_module("torch.nn.parallel.data_parallel")
        names = {name: name for name in ("replicate", "gather")}
        names |= {"scatter_kwargs": "scatter", "parallel_apply": "compute"}
        rest = "backward and optimizer"  # its backward adds the gradients
    with recording_calls(module, names, devices) as events:
        whole = time_steps(_replicas(size, devices), devices[0], seconds)
    durations = {
        part: [end - start for _, event_part, start, end in events if event_part == part]
        for part in ORDER
    }
    parts = {part: median(durations[part][-len(whole) :]) for part in ORDER}
    return parts | {rest: max(0.0, median(whole) - sum(parts.values()))}


@cache  # read once a process, not once a size
def _digits() -> DigitsDataset:
    return DigitsDataset()


def model_and_batch(size: Size, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """A new model on the device; images and labels of one batch, still on the CPU."""
    torch.manual_seed(single_process.SEED)
    digits = _digits()
    rows = torch.arange(size.batch) % len(digits)  # a batch may be larger than the data set
    model = DigitsMLP(size.width, size.depth).to(device)
    return model, digits.images[rows], digits.labels[rows]


def _one_process(size: Size, device: torch.device) -> Callable[[], None]:
    model, images, labels = model_and_batch(size, device)
    return training_step(
        model,
        lambda: single_process.forward_and_backward(model, images.to(device), labels.to(device)),
    )


def _replicas(size: Size, devices: list[torch.device]) -> Callable[[], None]:
    model, images, labels = model_and_batch(size, devices[0])
    return training_step(
        model, lambda: data_parallel.forward_and_backward(model, images, labels, devices)
    )


def training_step(model: nn.Module, work: Callable[[], Tensor]) -> Callable[[], None]:
    """A function that does one training step; `work` is its forward and backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=single_process.LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        work()
        optimizer.step()

    return step


def time_steps(step: Callable[[], object], device: torch.device, seconds: float) -> list[float]:
    """Time as many steps as fit into `seconds`; all ranks of a group take the same number."""
    guess = time_step(step, warm_up=WARM_UP - 1, repeats=1, device=device)[0]
    repeats = torch.tensor(min(max(REPEATS[0], int(seconds / guess)), REPEATS[1]), device=device)
    if dist.is_initialized():
        dist.broadcast(repeats, src=0)
    return time_step(step, warm_up=0, repeats=int(repeats), device=device)


@contextlib.contextmanager
def recording_calls(
    module: ModuleType, parts: Mapping[str, str], devices: Sequence[torch.device] = ()
) -> Iterator[list[tuple[str, str, float, float]]]:
    """Note every call of some functions of `module`: (thread, part, start, end), in seconds.

    `parts` has the part of a step that each function is. `devices` are waited for at each look at
    the clock. The functions are put back afterwards.
    """
    events: list[tuple[str, str, float, float]] = []

    def with_clock(function: Callable, part: str) -> Callable:
        def call(*args, **kwargs):
            start = _now(devices)
            result = function(*args, **kwargs)
            events.append((threading.current_thread().name, part, start, _now(devices)))
            return result

        return call

    functions: dict[str, Any] = {
        name: with_clock(getattr(module, name), part) for name, part in parts.items()
    }
    with patch.multiple(module, **functions):
        yield events


def _now(devices: Sequence[torch.device]) -> float:
    for device in devices:
        synchronise(device)
    return time.perf_counter()
