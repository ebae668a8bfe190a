"""One step on a few samples, from all sides: what each device got and what it computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, batches
from manyranks import figures

# The picture, in inches
LEFT, DIGIT, GAP, BOX, HEIGHT = 1.75, 0.47, 0.22, 0.56, 3.95
ROWS = {  # what each of the chapter's functions does, and where its row begins
    "scatter": ("cut the batch", 0.42),
    "replicate": ("copy the model", 1.5),
    "parallel_apply": ("compute in threads:\nshares of the loss", 2.32),
    "gather": ("add on device 0", 3.2),
}


class Step(NamedTuple):
    """A step of the stand-in: the batch, how it was cut, and the loss of each piece."""

    images: Tensor  # [samples, 64]
    labels: Tensor  # [samples]
    sizes: list[int]  # samples of each device
    shares: list[float]  # each device's share of the batch's mean loss
    loss: float  # of the batch, from the shares
    loss_alone: float  # of the same batch in one process


def run_step(samples: int = 10, devices: int = 4) -> Step:
    """Run the chapter's four operations on the first digits, and one process beside them."""
    images, labels = next(batches(DigitsDataset(), samples, epoch=0))
    torch.manual_seed(single_process.SEED)
    model, cpus = DigitsMLP(), cpu_devices(devices)
    loss_alone = single_process.forward_and_backward(model, images, labels)
    model.zero_grad()
    pieces = data_parallel.scatter(images, labels, cpus)
    replicas = data_parallel.replicate(model, cpus[: len(pieces)])
    shares = data_parallel.parallel_apply(replicas, pieces, len(images))
    data_parallel.add_gradients(replicas)
    return Step(
        images,
        labels,
        [len(own) for _, own in pieces],
        [share.item() for share in shares],
        data_parallel.gather(shares).item(),
        loss_alone.item(),
    )


@figures.house_style
def operations(step: Step) -> figures.Picture:
    """The batch on top, a column for each device below it, and the sum on device 0 at the end."""
    axes = figures.sheet(figures.WIDTH, HEIGHT)
    axes.text(LEFT, 0.2, f"one batch of {len(step.labels)} samples", va="center")
    for name, (what, top) in ROWS.items():
        axes.text(0.1, top + 0.14, name, weight="bold", va="center")
        axes.text(0.1, top + 0.31, what, va="top", size=9)
    tops = {name: top for name, (_, top) in ROWS.items()}
    width = max(step.sizes) * DIGIT  # a copy is as large as the model, whatever its piece
    lefts = [LEFT + device * (width + GAP) for device in range(len(step.sizes))]
    for device, left in enumerate(lefts):
        _draw_piece(axes, step, device, left)
        model = "the model" if device == 0 else "a copy"
        size, middle = (width, BOX), left + width / 2
        figures.box(axes, (left, tops["replicate"]), size, f"device {device}\n{model}", device)
        share = f"{step.shares[device]:.3f}"
        figures.box(axes, (left, tops["parallel_apply"]), size, share, device)
        below = (middle, tops["parallel_apply"] + BOX)
        figures.arrow(axes, below, (middle, tops["gather"]), device)
    words = f"loss {step.loss:.3f}, the sum of the shares (in one process: {step.loss_alone:.3f})\n"
    words += "gradient: the sum of all devices' gradients"
    figures.box(axes, (LEFT, tops["gather"]), (lefts[-1] + width - LEFT, BOX), words, 0)
    sizes = ", ".join(map(str, step.sizes))
    shares = ", ".join(f"{share:.3f}" for share in step.shares)
    return figures.Picture(
        axes.figure,
        f"One step of DataParallel. A batch of {len(step.labels)} samples is cut into pieces of "
        f"{sizes} samples for {len(step.sizes)} devices. Device 0 has the model, the others have "
        f"copies. Their shares of the loss are {shares}. On device 0 they add up to "
        f"{step.loss:.3f}; one process has {step.loss_alone:.3f}.",
    )


def _draw_piece(axes: Any, step: Step, device: int, left: float) -> None:
    """The device's piece of the batch, framed in its colour."""
    first, count, top = sum(step.sizes[:device]), step.sizes[device], ROWS["scatter"][1]
    for place in range(count):
        x = left + place * DIGIT
        edges = (x + 0.04, x + DIGIT - 0.04, top + DIGIT - 0.08, top)
        pixels = step.images[first + place].reshape(8, 8).numpy()
        axes.imshow(pixels, cmap="gray_r", extent=edges, aspect="auto", zorder=2)
    frame = {"facecolor": "none", "linewidth": 3}
    figures.box(axes, (left, top - 0.05), (count * DIGIT, DIGIT + 0.02), "", device, frame=frame)
    samples = f"{count} sample{'s' * (count > 1)}"
    axes.text(left, top + DIGIT + 0.13, samples, size=9, va="center")


def cpu_devices(devices: int) -> list[torch.device]:
    """Devices for the stand-in, whose threads all use the CPU."""
    return [torch.device("cpu")] * devices


def bytes_copied(devices: Sequence[int]) -> pd.DataFrame:
    """What `replicate` writes anew in each step, counted in the copies' memory, and (n-1) · S."""
    model = DigitsMLP()
    size = sum(parameter.nbytes for parameter in model.parameters())
    rows = {}
    for count in devices:
        replicas = data_parallel.replicate(model, cpu_devices(count))
        sizes = {p.data_ptr(): p.nbytes for replica in replicas for p in replica.parameters()}
        rows[count] = sum(sizes.values()) - size, (count - 1) * size  # the model was there before
    table = pd.DataFrame(rows.values(), index=rows, columns=["measured, bytes", "(n-1) · S, bytes"])
    return table.rename_axis("devices")


def device_table(
    replicas: Sequence[nn.Module], pieces: Sequence[tuple[Tensor, Tensor]], shares: Sequence[Tensor]
) -> pd.DataFrame:
    """For each device its samples, its share of the loss, and the norm of its own gradient."""
    columns = {
        "images": [tuple(images.shape) for images, _ in pieces],
        "labels": [labels.tolist() for _, labels in pieces],
        "share of the loss": [round(share.item(), 3) for share in shares],
        "norm of its gradient": [
            round(flat_gradient(replica).norm().item(), 3) for replica in replicas
        ],
    }
    return pd.DataFrame(columns).rename_axis("device")


def difference_table(
    loss: Tensor, alone: Tensor, model: nn.Module, other: nn.Module
) -> pd.DataFrame:
    """Loss and one gradient, the one that differs most, of devices and of one process."""
    ours, theirs = flat_gradient(model), flat_gradient(other)
    most = (ours - theirs).abs().argmax()
    columns = {
        "": ["loss", "the gradient that differs most"],
        "devices": [loss.item(), ours[most].item()],
        "one process": [alone.item(), theirs[most].item()],
        "difference": [(loss - alone).item(), (ours - theirs)[most].item()],
    }
    return pd.DataFrame(columns)


def flat_gradient(model: nn.Module) -> Tensor:
    """The gradients of all parameters in one vector."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
