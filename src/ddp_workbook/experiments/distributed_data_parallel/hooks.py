"""Backward, watched by hooks: when each gradient is ready, and when each bucket is on its way."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.launcher.launch import launch

WIDTH, DEPTH, ROWS = 512, 3, 512  # gradients of 1 MiB for each hidden layer but the first
GRADIENT, BUCKET = "gradient", "bucket"


class Gradient(NamedTuple):
    """A gradient of `size` bytes that was ready `at` ms after backward began, for `bucket`."""

    name: str
    size: int
    bucket: int
    at: float


class Bucket(NamedTuple):
    """An all-reduce of `size` bytes: when it was started, and when the averages were there."""

    size: int
    start: float
    end: float


class Backward(NamedTuple):
    """One backward pass of one rank, in milliseconds since it began there.

    `ready` are its gradients in the order in which they came, `sent` its buckets.
    """

    ready: list[Gradient]
    sent: list[Bucket]

    @property
    def last_gradient(self) -> float:
        """When there was nothing left to compute, in ms."""
        return max(one.at for one in self.ready)

    @property
    def end(self) -> float:
        """When the last all-reduce had ended, in ms."""
        return max(one.end for one in self.sent)


def watch(ddp: DistributedDataParallel) -> list[tuple]:
    """Put hooks on `ddp`; return the list to which they append (what, names, start, end)."""
    seen, clock = [], time.perf_counter
    names = {parameter: name for name, parameter in ddp.module.named_parameters()}

    def note_gradient(parameter):
        seen.append((GRADIENT, [names[parameter]], clock(), clock()))

    def average(_, bucket: dist.GradBucket) -> Future[Tensor]:
        inside, start = [names[one] for one in bucket.parameters()], clock()
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def note_arrival(done: Future):
            seen.append((BUCKET, inside, start, clock()))
            return done.value()[0]

        return work.get_future().then(note_arrival)

    for parameter in names:
        parameter.register_post_accumulate_grad_hook(note_gradient)
    ddp.register_comm_hook(None, average)
    return seen


def watched_steps(steps: int, width: int, depth: int, **arguments) -> list[Backward]:
    """A worker: the backward pass of each step; `arguments` are those of DDP's constructor."""
    device, found = setup(), []
    torch.manual_seed(0)
    images, model = DigitsDataset().images[:ROWS].to(device), DigitsMLP(width, depth).to(device)
    ddp = DistributedDataParallel(model, **arguments)
    seen = watch(ddp)
    sizes = {name: parameter.nbytes for name, parameter in model.named_parameters()}
    for _ in range(steps):
        ddp.zero_grad()
        loss = ddp(images).logsumexp(dim=1).mean()  # any number will do
        dist.barrier()  # else one rank would wait for the other's forward
        seen.clear()
        began = time.perf_counter()
        loss.backward()
        in_ms = [(*one, 1e3 * (start - began), 1e3 * (end - began)) for *one, start, end in seen]
        found.append(_backward(in_ms, sizes))
    dist.barrier()
    return found


def watched_backward(ranks: int = 2, steps: int = 5, **arguments) -> list[list[Backward]]:
    """For each rank, the backward pass of each step. `arguments` are those of DDP's constructor."""
    return launch(watched_steps, steps, WIDTH, DEPTH, ranks=ranks, **arguments)


def _backward(seen: Sequence[tuple], sizes: dict[str, int]) -> Backward:
    buckets = sorted((one for one in seen if one[0] == BUCKET), key=lambda one: one[2])
    home = {name: number for number, (_, inside, *_) in enumerate(buckets) for name in inside}
    ready = [
        Gradient(name, sizes[name], home[name], start)
        for what, (name, *_), start, _ in seen
        if what == GRADIENT
    ]
    sent = [
        Bucket(sum(sizes[name] for name in inside), start, end) for _, inside, start, end in buckets
    ]
    return Backward(ready, sent)


def order_table(steps: Sequence[Backward]) -> pd.DataFrame:
    """A row a parameter, in the model's order: when its gradient was ready, and in which bucket.

    `steps` are the backward passes of one rank.
    """
    first, last = steps[0], steps[-1]
    home = {one.name: one.bucket for one in first.ready}
    place = {one.name: number for number, one in enumerate(last.ready, start=1)}
    now = {one.name: one for one in last.ready}
    rows = [
        (name, f"{now[name].size:,}", place[name], home[name], now[name].bucket)
        for name, _ in DigitsMLP(WIDTH, DEPTH).named_parameters()
    ]
    columns = ["parameter", "bytes", "order of arrival", "bucket in step 1", "bucket since step 2"]
    return pd.DataFrame(rows, columns=columns)
