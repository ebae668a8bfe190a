"""What each device holds during a step of DataParallel with Adam."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import torch
from torch import Tensor

from ddp_workbook.chapters import data_parallel
from ddp_workbook.experiments.data_parallel.one_step import cpu_devices
from ddp_workbook.experiments.data_parallel.step_times import Size, model_and_batch
from manyranks import figures

SIZE = Size(width=256, depth=1, batch=1024)


def bytes_by_device(devices: int = 2, size: Size = SIZE) -> pd.DataFrame:
    """Bytes on each device at the end of a step of the stand-in: a row a device, a column a kind.

    nn.DataParallel gathers the outputs of all rows on device 0. The stand-in needs none; they are
    gathered here to be counted.
    """
    model, images, labels = model_and_batch(size, torch.device("cpu"))
    optimizer = torch.optim.Adam(model.parameters())
    pieces = data_parallel.scatter(images, labels, cpu_devices(devices))
    replicas = data_parallel.replicate(model, cpu_devices(devices))
    with torch.no_grad():
        outputs = torch.cat([r(rows) for r, (rows, _) in zip(replicas, pieces, strict=True)])
    data_parallel.parallel_apply(replicas, pieces, len(images))
    data_parallel.add_gradients(replicas)
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values()]
    on_device_0 = [0] * (devices - 1)
    columns = {
        "parameters": [nbytes(replica.parameters()) for replica in replicas],
        "gradients": [nbytes(p.grad for p in replica.parameters()) for replica in replicas],
        "inputs": [nbytes(piece) for piece in pieces],
        "optimizer state": [nbytes(state), *on_device_0],
        "outputs": [outputs.nbytes, *on_device_0],
    }
    return pd.DataFrame(columns).rename_axis("device")


@figures.house_style
def memory_plot(devices: int = 2) -> figures.Picture:
    """A stacked bar for each device: what it holds at the end of a step of the stand-in."""
    table = bytes_by_device(devices) / 1024
    table.index = [f"device {device}" for device in table.index]
    unit = "KiB of tensors at the end of a step (stand-in: CPU threads)"
    return figures.bars(table, unit, "What each device holds", totals=figures.number)


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all these tensors together."""
    return sum(tensor.nbytes for tensor in tensors)


def peaks_on_gpus(steps: int = 3) -> list[float] | str:
    """The most MiB of tensors on each of two GPUs in steps of nn.DataParallel with Adam.

    A sentence if there are no two GPUs.
    """
    devices = data_parallel.pick_devices(2)
    if devices[0].type != "cuda":
        return "This machine has fewer than two GPUs: see the picture above."
    model, images, labels = model_and_batch(Size(1024, 4, 1024), devices[0])
    optimizer = torch.optim.Adam(model.parameters())
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(steps):
        optimizer.zero_grad()
        data_parallel.forward_and_backward(model, images, labels, devices)
        optimizer.step()
    return [round(torch.cuda.max_memory_allocated(device) / 2**20, 1) for device in devices]
