"""Backward, watched by hooks: when each gradient is ready, and how buckets fill and leave."""

import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from manyranks import figures
from manyranks.figures.palette import FAINT, series_colour, tint
from manyranks.launcher.launch import launch

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

    `ready` are its gradients in the order in which they came, `buckets` its all-reduces.
    """

    ready: list[Gradient]
    buckets: list[Bucket]

    @property
    def last_gradient(self) -> float:
        """When there was nothing left to compute, in ms."""
        return max(gradient.at for gradient in self.ready)

    @property
    def end(self) -> float:
        """When the last all-reduce had ended, in ms."""
        return max(bucket.end for bucket in self.buckets)


def record_backward(ddp: DistributedDataParallel) -> list[tuple]:
    """Put hooks on `ddp`; return the list to which they append (what, names, start, end)."""
    events, clock = [], time.perf_counter
    names = {parameter: name for name, parameter in ddp.module.named_parameters()}

    def note_gradient(parameter):
        events.append((GRADIENT, [names[parameter]], clock(), clock()))

    def average(_, bucket: dist.GradBucket) -> Future[Tensor]:
        inside, start = [names[parameter] for parameter in bucket.parameters()], clock()
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def note_arrival(future: Future):
            events.append((BUCKET, inside, start, clock()))
            return future.value()[0]

        return work.get_future().then(note_arrival)

    for parameter in names:
        parameter.register_post_accumulate_grad_hook(note_gradient)
    ddp.register_comm_hook(None, average)
    return events


def record_steps(steps: int, width: int, depth: int, **arguments) -> list[Backward]:
    """A worker: the backward pass of each step; `arguments` are those of DDP's constructor."""
    device, passes = setup(), []
    torch.manual_seed(0)
    images, model = DigitsDataset().images[:ROWS].to(device), DigitsMLP(width, depth).to(device)
    ddp = DistributedDataParallel(model, **arguments)
    events = record_backward(ddp)
    sizes = {name: parameter.nbytes for name, parameter in model.named_parameters()}
    for _ in range(steps):
        ddp.zero_grad()
        loss = ddp(images).logsumexp(dim=1).mean()  # any number will do
        dist.barrier()  # else one rank would wait for the other's forward
        events.clear()
        start_time = time.perf_counter()
        loss.backward()
        in_ms = [
            (*record, 1e3 * (start - start_time), 1e3 * (end - start_time))
            for *record, start, end in events
        ]
        passes.append(_backward(in_ms, sizes))
    dist.barrier()
    return passes


def record_backward_passes(ranks: int = 2, steps: int = 5, **arguments) -> list[list[Backward]]:
    """For each rank, the backward pass of each step. `arguments` are those of DDP's constructor."""
    return launch(record_steps, steps, WIDTH, DEPTH, ranks=ranks, **arguments)


def _backward(events: Sequence[tuple], sizes: dict[str, int]) -> Backward:
    bucket_events = sorted(
        (event for event in events if event[0] == BUCKET), key=lambda event: event[2]
    )
    home = {name: number for number, (_, inside, *_) in enumerate(bucket_events) for name in inside}
    ready = [
        Gradient(name, sizes[name], home[name], start)
        for what, (name, *_), start, _ in events
        if what == GRADIENT
    ]
    buckets = [
        Bucket(sum(sizes[name] for name in inside), start, end)
        for _, inside, start, end in bucket_events
    ]
    return Backward(ready, buckets)


def order_table(steps: Sequence[Backward]) -> pd.DataFrame:
    """A row a parameter, in the model's order: when its gradient was ready, and in which bucket.

    `steps` are the backward passes of one rank.
    """
    first, last = steps[0], steps[-1]
    home = {gradient.name: gradient.bucket for gradient in first.ready}
    place = {gradient.name: number for number, gradient in enumerate(last.ready, start=1)}
    now = {gradient.name: gradient for gradient in last.ready}
    rows = [
        (name, f"{now[name].size:,}", place[name], home[name], now[name].bucket)
        for name, _ in DigitsMLP(WIDTH, DEPTH).named_parameters()
    ]
    columns = ["parameter", "bytes", "order of arrival", "bucket in step 1", "bucket since step 2"]
    return pd.DataFrame(rows, columns=columns)


# How buckets fill, and what of their all-reduces nothing hides. Annotations that name `figures` are
# strings, or each rank would import matplotlib; a comm hook's must not be.


FILLED_WIDTH, FILLED_DEPTH = 256, 8
CAP = 0.5  # MiB
STEPS = 11  # the first has one bucket, the second makes the real ones; the median of the others
MIB = 2**20
CLOSED, ALERT = series_colour(5), "#c62828"  # a bucket on its way; what makes the step longer
ROOM_FOR_WORDS = 0.3  # of the axis: what a line of words needs


def play_buckets() -> "ddp_workbook.Play":
    """One backward on two ranks, with controls for the buckets and the model."""
    caps = (0.1, 0.25, CAP, 1, 25)
    return ddp_workbook.play(
        backward_passes,
        buckets_plot,
        stills=[
            {"cap": 0.1},
            {"cap": 1},
            {"depth": 2},
            {"depth": 12},
            {"cap": 25},
        ],
        cap=ddp_workbook.slider("a bucket is closed at, MiB", caps, CAP),
        depth=ddp_workbook.slider("hidden layers", range(1, 13), FILLED_DEPTH),
    )


def backward_passes(cap: float = CAP, depth: int = FILLED_DEPTH) -> list[Backward]:
    """A worker: each backward after the second.

    A bucket is closed with the gradient that takes it to `cap` MiB or more.
    """
    return record_steps(STEPS, FILLED_WIDTH, depth, bucket_cap_mb=cap)[2:]


@figures.house_style
def buckets_plot(of_ranks: list[list[Backward]], **_: object) -> "figures.Picture":
    """Rank 0's gradients as they become ready, and below them a lane for each bucket's all-reduce.

    Shows the backward of median length.
    """
    ordered = sorted(of_ranks[0], key=lambda backward_pass: backward_pass.end)
    backward = ordered[len(ordered) // 2]
    lanes = len(backward.buckets)
    rows = {"height_ratios": [1.5, 0.26 * lanes + 0.4]}
    figure = figures.Figure((figures.WIDTH, 2.8 + 0.26 * lanes), layout="constrained")
    above, below = figure.subplots(2, sharex=True, gridspec_kw=rows)
    _staircase(above, backward)
    _all_reduces(below, backward)
    took = figures.number(backward.end)
    above.set_title(f"Rank 0, one backward: {took} ms until all averages are there")
    return figures.Picture(figure, _words(backward))


def _staircase(axes: "figures.Axes", backward: Backward) -> None:
    """MiB of gradients that are ready, against time; a dot for each bucket that is closed."""
    times, heights = [0.0], [0.0]
    for gradient in backward.ready:
        times.append(gradient.at)
        heights.append(heights[-1] + gradient.size / MIB)
    total = heights[-1]
    end = [*times, backward.end], [*heights, total]
    axes.fill_between(*end, step="post", color=FAINT, linewidth=0)
    axes.step(*end, where="post", color=series_colour(0))
    closed = list(accumulate(bucket.size / MIB for bucket in backward.buckets))
    starts = [bucket.start for bucket in backward.buckets]
    axes.plot(starts, closed, "o", color=CLOSED, markersize=6)
    last = backward.last_gradient
    axes.plot([last, last], [0, total], color=ALERT, linewidth=1)
    late = last > ROOM_FOR_WORDS * backward.end
    for at, side, words, colour in (
        (last, "right" if late else "left", "last gradient ready", ALERT),
        (0 if late else backward.end, "left" if late else "right", "● a bucket is closed", CLOSED),
    ):
        axes.text(at, total * 1.12, words, ha=side, color=colour, size=9)
    axes.set(ylim=(0, total * 1.3), ylabel="MiB of\ngradients ready")


def _all_reduces(axes: "figures.Axes", backward: Backward) -> None:
    """A lane for each bucket: pale while backward computes, red when nothing is left to compute."""
    last, end, lanes = backward.last_gradient, backward.end, len(backward.buckets)
    names = []
    for place, bucket in enumerate(backward.buckets):
        hidden = min(bucket.end, last)
        if bucket.start < hidden:
            pale = tint(CLOSED, 0.5)
            axes.barh(place, hidden - bucket.start, 0.7, left=bucket.start, color=pale)
        exposed = max(bucket.start, last)
        if exposed < bucket.end:
            axes.barh(place, bucket.end - exposed, 0.7, left=exposed, color=ALERT)
        inside = layers(one.name for one in backward.ready if one.bucket == place)
        names.append(f"{inside}: {bucket.size / MIB:.2f} MiB")
    bracket = [last, last, end, end]
    axes.plot(bracket, [lanes - 0.4, lanes - 0.1, lanes - 0.1, lanes - 0.4], color=ALERT)
    words = f"exposed: {figures.number(end - last)} ms"
    look = {"color": ALERT, "size": 9, "weight": "bold"}
    if last > ROOM_FOR_WORDS * end:
        axes.text(last - 0.01 * end, lanes - 0.1, words, ha="right", va="center", **look)
    else:
        axes.text((last + end) / 2, lanes + 0.05, words, ha="center", va="top", **look)
    axes.set_yticks(range(lanes), names, fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set(
        xlim=(0, end * 1.005), ylim=(lanes + 0.7, -0.6), xlabel="milliseconds since backward began"
    )
    axes.set_title("all-reduce of each bucket", weight="normal", size=10)


def layers(parameters: Iterable[str]) -> str:
    """The layers of these parameters: "output, hidden 6 to 7"."""
    names = {name.rpartition(".")[0] for name in parameters}
    hidden = sorted(int(name.partition(".")[2]) for name in names if "." in name)
    runs = [f"hidden {hidden[0]}"] if hidden else []
    if len(hidden) > 1:
        runs = [f"hidden {hidden[0]} to {hidden[-1]}"]
    return ", ".join(sorted(name for name in names if "." not in name) + runs)


def _words(backward: Backward) -> str:
    last = backward.last_gradient
    words = [
        f"bucket {place} ({layers(g.name for g in backward.ready if g.bucket == place)}), "
        f"{bucket.size / MIB:.2f} MiB, travels from {bucket.start:.1f} to {bucket.end:.1f}"
        for place, bucket in enumerate(backward.buckets)
    ]
    return (
        "Rank 0's buckets fill one after the other during one backward, and the all-reduce of each "
        f"begins when it is closed. In milliseconds: {'; '.join(words)}. The last gradient is "
        f"ready at {last:.1f}; what is under way from there to {backward.end:.1f} is exposed, "
        f"{figures.number(backward.end - last)} ms."
    )
