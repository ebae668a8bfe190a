"""One step of all ranks, the chapter's first picture: what each has, and the one thing it sends."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from manyranks import figures
from manyranks.figures.palette import series_colour, tint

ROWS, DEPTH = 8, 3
CAP = 1 / 64  # MiB: three buckets for this small model, where DDP's default makes one

# Annotations that name `figures` are strings, or each rank would import matplotlib; a comm hook's
# must not be.

# The picture, in inches from its top left corner: (top, height) of each row.
SIZE, LEFT, GAP = (8.4, 5.5), 1.5, 0.42
DIGITS, LAYERS, OWN, REDUCE, MEAN = (0.36, 0.5), (1.52, 0.92), (2.84, 0.7), (3.9, 0.4), (4.65, 0.7)
ALL = series_colour(3)  # what belongs to no rank


class Bucket(NamedTuple):
    """One bucket of a rank: whose gradients it holds, and the first number in it."""

    layers: list[str]  # in the order in which their gradients become ready
    size: int  # bytes
    own: float  # before the all-reduce: from this rank's samples
    mean: float  # after it


class Step(NamedTuple):
    """What one rank did in the step."""

    rows: list[int]  # which samples of the batch
    images: list[list[float]]  # [samples, 64], 0 to 1
    labels: list[int]
    buckets: list[Bucket]  # in the order in which they are sent


def step_of_this_rank() -> Step:
    """The second of two steps on the first rows of the digits.

    In its first step DDP has a single bucket: it does not know the order of the gradients yet.
    """
    device, digits = setup(), DigitsDataset()
    rows = list(range(ROWS))[dist.get_rank() :: dist.get_world_size()]
    images, labels = digits.images[rows].to(device), digits.labels[rows].to(device)
    torch.manual_seed(0)
    model = DigitsMLP(depth=DEPTH).to(device)
    names = {parameter: name for name, parameter in model.named_parameters()}
    ddp = DistributedDataParallel(model, bucket_cap_mb=CAP)
    buckets: list[Bucket] = []

    def average(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """What DDP does without a hook, and a note of it."""
        buffer = bucket.buffer()
        own = buffer[0].item()
        dist.all_reduce(buffer.div_(dist.get_world_size()))
        inside = [names[p].rpartition(".")[0] for p in bucket.parameters()]
        buckets.append(Bucket(list(dict.fromkeys(inside)), buffer.nbytes, own, buffer[0].item()))
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    ddp.register_comm_hook(None, average)
    for _ in range(2):
        ddp.zero_grad()
        buckets.clear()
        forward_and_backward(ddp, images, labels, ROWS)
    cleanup()
    return Step(rows, images.tolist(), labels.tolist(), buckets)


@figures.house_style
def replicas(steps: Sequence[Step]) -> "figures.Picture":
    """A column for each rank: samples, replica, buckets; between them the all-reduce."""
    axes = figures.sheet(*SIZE)
    wide = (SIZE[0] - 0.17 - LEFT - GAP * (len(steps) - 1)) / len(steps)
    for (top, height), words in {
        DIGITS: "its samples\nof the batch",
        LAYERS: "its replica\nof the model",
        OWN: "own gradients,\nin buckets",
        MEAN: "mean gradients,\nin buckets",
    }.items():
        axes.text(0.08, top + height / 2, words, va="center", size=10)
    for rank, step in enumerate(steps):
        _process(axes, LEFT + rank * (wide + GAP), wide, rank, step)
    words = "all-reduce: the mean over the ranks, one bucket after the other"
    wire = {"facecolor": ALL, "edgecolor": ALL}
    corner, size = (LEFT - 0.13, REDUCE[0]), (SIZE[0] - LEFT + 0.09, REDUCE[1])
    figures.box(axes, corner, size, words, frame=wire, color="white", fontsize=11)
    axes.text(0.08, sum(REDUCE) - REDUCE[1] / 2, "on the wire", va="center", size=10)
    return figures.Picture(axes.figure, _words(steps))


def _process(axes: "figures.Axes", left: float, wide: float, rank: int, step: Step) -> None:
    frame = {"facecolor": "none", "linewidth": 2}
    for top, bottom in ((0.04, sum(OWN) + 0.11), (MEAN[0] - 0.11, sum(MEAN) + 0.11)):
        figures.box(axes, (left - 0.13, top), (wide + 0.26, bottom - top), "", rank, frame=frame)
    axes.text(left, 0.2, f"rank {rank}: a process", va="center", weight="bold")
    top, height = DIGITS
    pitch = wide / len(step.rows)
    for place, (row, image) in enumerate(zip(step.rows, step.images, strict=True)):
        x = left + place * pitch
        edges = (x, x + 0.9 * pitch, top + height, top)
        pixels = torch.tensor(image).reshape(8, 8).numpy()
        axes.imshow(pixels, cmap="gray_r", extent=edges, aspect="auto", zorder=2)
        own = (0.9 * pitch, height)
        figures.box(axes, (x, top), own, "", rank, frame={"facecolor": "none", "zorder": 3})
        axes.text(x + 0.45 * pitch, top + height + 0.12, f"sample {row}", ha="center", size=9)
    _replica(axes, left, wide, step)
    for (top, height), name in ((OWN, "own"), (MEAN, "mean")):
        pitch = wide / len(step.buckets)
        for place, bucket in enumerate(step.buckets):
            words = " and\n".join(bucket.layers) + f"\n{getattr(bucket, name):.4f} …"
            box = (axes, (left + place * pitch, top), (0.94 * pitch, height), words)
            if name == "own":
                figures.box(*box, rank, fontsize=10)
            else:
                figures.box(*box, frame={"edgecolor": ALL, "facecolor": tint(ALL)}, fontsize=10)
    middle = left + wide / 2
    figures.arrow(axes, (middle, sum(OWN) + 0.13), (middle, REDUCE[0] - 0.03))
    figures.arrow(axes, (middle, sum(REDUCE) + 0.03), (middle, MEAN[0] - 0.14))


def _replica(axes: "figures.Axes", left: float, wide: float, step: Step) -> None:
    layers = [layer for bucket in step.buckets for layer in bucket.layers][::-1]
    top, height = LAYERS
    pitch = height / len(layers)
    axes.text(left + wide / 2, top - 0.13, "the same weights", ha="center", va="center", size=10)
    for place, layer in enumerate(layers):
        figures.box(axes, (left, top + place * pitch), (wide, 0.94 * pitch), layer, fontsize=10)
    figures.arrow(axes, (left + 0.1, top + height), (left + 0.1, OWN[0] - 0.05))
    axes.text(left + 0.2, 2.64, "backward, from the output on", va="center", size=10)


def _words(steps: Sequence[Step]) -> str:
    words = []
    for rank, step in enumerate(steps):
        rows = ", ".join(map(str, step.rows))
        own = ", ".join(f"{bucket.own:.4f}" for bucket in step.buckets)
        words.append(f"Rank {rank} has samples {rows} and own gradients that begin with {own}.")
    buckets = steps[0].buckets
    mean = ", ".join(f"{bucket.mean:.4f}" for bucket in buckets)
    layers = "; ".join(" and ".join(bucket.layers) for bucket in buckets)
    return (
        f"{len(steps)} processes side by side, each with samples of the batch, a whole model and "
        f"{len(buckets)} buckets of gradients ({layers}). {' '.join(words)} An all-reduce between "
        f"the processes makes the mean of each bucket, {mean}, which all ranks then have."
    )
