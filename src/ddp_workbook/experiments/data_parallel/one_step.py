"""One step on a few rows, looked at from all sides: what each device got and what it computed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.digits import DigitsDataset, DigitsMLP, Trained, batches


class Step(NamedTuple):
    """A step of the stand-in: the batch, how it was cut, and the loss of each piece."""

    images: Tensor  # [rows, 64]
    labels: Tensor  # [rows]
    sizes: list[int]  # rows of each device
    shares: list[float]  # each device's share of the batch's mean loss
    loss: float  # of the batch, from the shares
    loss_alone: float  # of the same batch in one process


def one_step(rows: int = 10, devices: int = 4) -> Step:
    """Run the chapter's four operations on the first digits, and one process beside them."""
    images, labels = next(batches(DigitsDataset(), rows, epoch=0))
    torch.manual_seed(single_process.SEED)
    model, cpus = DigitsMLP(), threads(devices)
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


def threads(devices: int) -> list[torch.device]:
    """Devices for the stand-in, whose threads all use the CPU."""
    return [torch.device("cpu")] * devices


def bytes_copied(devices: Sequence[int]) -> pd.DataFrame:
    """What `replicate` writes anew in each step, counted in the copies' memory, and (n-1) · S."""
    model = DigitsMLP()
    size = sum(parameter.nbytes for parameter in model.parameters())
    rows = {}
    for count in devices:
        replicas = data_parallel.replicate(model, threads(count))
        held = {p.data_ptr(): p.nbytes for replica in replicas for p in replica.parameters()}
        rows[count] = sum(held.values()) - size, (count - 1) * size  # the model was there before
    table = pd.DataFrame(rows.values(), index=rows, columns=["measured, bytes", "(n-1) · S, bytes"])
    return table.rename_axis("devices")


def on_each_device(
    replicas: Sequence[nn.Module], pieces: Sequence[tuple[Tensor, Tensor]], shares: Sequence[Tensor]
) -> pd.DataFrame:
    """For each device its rows, its share of the loss, and the norm of its own gradient."""
    columns = {
        "images": [tuple(images.shape) for images, _ in pieces],
        "labels": [labels.tolist() for _, labels in pieces],
        "share of the loss": [round(share.item(), 3) for share in shares],
        "norm of its gradient": [
            round(flat_gradient(replica).norm().item(), 3) for replica in replicas
        ],
    }
    return pd.DataFrame(columns).rename_axis("device")


def flat_gradient(model: nn.Module) -> Tensor:
    """The gradients of all parameters in one vector."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def largest_differences(runs: Mapping[int, Trained], alone: Trained) -> pd.DataFrame:
    """By how much losses and final weights of each run differ from one process, at most."""
    rows = {}
    for devices, run in runs.items():
        losses = torch.tensor(run.losses) - torch.tensor(alone.losses)
        weights = [run.weights[name] - weight for name, weight in alone.weights.items()]
        largest = max(weight.abs().max().item() for weight in weights)
        rows[devices] = losses.abs().max().item(), largest
    table = pd.DataFrame(rows.values(), index=rows, columns=["losses", "final weights"])
    return table.rename_axis("devices")
