"""Backward, watched by hooks: when each gradient is ready, and when each bucket is on its way."""

import time
from collections.abc import Sequence

import pandas as pd
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.digits import DigitsDataset, DigitsMLP
from ddp_workbook.figures.distributed_data_parallel.hooks import Arrival, Backward
from ddp_workbook.launcher.launch import launch

WIDTH, DEPTH, ROWS = 512, 3, 512  # gradients of 1 MiB for each hidden layer but the first
GRADIENT, BUCKET = "gradient", "bucket"


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


def watched_steps(steps: int, **arguments) -> list[list[tuple]]:
    """A worker: for each step what `watch` saw of its backward, in ms since that began."""
    device, steps_seen = setup(), []
    images, model = DigitsDataset().images[:ROWS].to(device), DigitsMLP(WIDTH, DEPTH).to(device)
    ddp = DistributedDataParallel(model, **arguments)
    seen = watch(ddp)
    for _ in range(steps):
        ddp.zero_grad()
        loss = ddp(images).logsumexp(dim=1).mean()  # any number will do
        dist.barrier()
        seen.clear()
        began = time.perf_counter()
        loss.backward()
        steps_seen.append([(*one, 1e3 * (a - began), 1e3 * (b - began)) for *one, a, b in seen])
    dist.barrier()
    return steps_seen


def watched_backward(ranks: int = 2, steps: int = 5, **arguments) -> list[list[Backward]]:
    """For each rank, the backward pass of each step. `arguments` are those of DDP's constructor."""
    of_ranks = launch(watched_steps, steps, ranks=ranks, **arguments)
    return [[_backward(seen) for seen in of_steps] for of_steps in of_ranks]


def _backward(seen: Sequence[tuple]) -> Backward:
    buckets = sorted((one for one in seen if one[0] == BUCKET), key=lambda one: one[2])
    home = {name: number for number, (_, inside, *_) in enumerate(buckets) for name in inside}
    ready = [
        Arrival(names[0], home[names[0]], start)
        for what, names, start, _ in seen
        if what == GRADIENT
    ]
    return Backward(ready, [(start, end) for *_, start, end in buckets])


def order_table(steps: Sequence[Backward]) -> pd.DataFrame:
    """A row a parameter, in the model's order: when its gradient was ready, and in which bucket.

    `steps` are the backward passes of one rank.
    """
    first, last = steps[0], steps[-1]
    home = {one.name: one.bucket for one in first.ready}
    place = {one.name: number for number, one in enumerate(last.ready, start=1)}
    now = {one.name: one.bucket for one in last.ready}
    rows = [
        (name, f"{parameter.nbytes:,}", place[name], home[name], now[name])
        for name, parameter in DigitsMLP(WIDTH, DEPTH).named_parameters()
    ]
    columns = ["parameter", "bytes", "order of arrival", "bucket in step 1", "bucket since step 2"]
    return pd.DataFrame(rows, columns=columns)
