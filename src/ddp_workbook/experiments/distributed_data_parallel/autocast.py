"""What autocast does: the format of every operation, of what is sent, and of what a rank holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_workbook.chapters import data_parallel
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.experiments.data_parallel.one_step import cpu_devices
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.recording.memory import MemoryLedger

ROWS = 64
VIEWS = ("slice", "t", "view", "detach", "ones_like")  # these compute nothing


class DtypeRecorder(TorchDispatchMode):
    """Notes what each operation takes and gives: (pass, operation, formats in, format out)."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str, str, str]] = []
        self.within = "forward"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operation, and note it."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.lstrip("_")
        if name not in VIEWS:
            formats = {_format(tensor): None for tensor in args if isinstance(tensor, Tensor)}
            output = result[0] if isinstance(result, tuple) else result
            name = {"to_copy": "convert"}.get(name, name)
            self.records.append((self.within, name, ", ".join(formats), _format(output)))
        return result


def _format(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def operations(dtype: torch.dtype = torch.float16) -> pd.DataFrame:
    """A row for each operation of one forward and backward under autocast: what it takes, gives."""
    digits, model = DigitsDataset(), DigitsMLP()
    with DtypeRecorder() as formats:
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(model(digits.images[:ROWS]), digits.labels[:ROWS])
        formats.within = "backward"
        loss.backward()
    return pd.DataFrame(formats.records, columns=["pass", "operation", "takes", "gives"])


def dtypes_after_step(dtype: torch.dtype = torch.float16) -> dict[str, str]:
    """The formats of scores, loss, weights and gradients of a step under autocast."""
    digits, model = DigitsDataset(), DigitsMLP()
    with torch.autocast("cpu", dtype):
        scores = model(digits.images[:ROWS])
        loss = F.cross_entropy(scores, digits.labels[:ROWS])
    loss.backward()
    weight = model.output.weight
    parts = {"scores": scores, "loss": loss, "weights": weight, "gradients": weight.grad}
    return {name: _format(part) for name, part in parts.items()}


# DataParallel


class AutocastInside(nn.Module):
    """A model that turns autocast on in its own forward, so that each thread does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """The model's scores, computed in float16."""
        with torch.autocast(images.device.type, torch.float16):
            return self.model(images)


def scores_of_threads() -> dict[str, list[str]]:
    """The formats of two replicas' scores, with autocast around the call and inside forward."""
    digits = DigitsDataset()
    formats_by_place = {}
    for where, wrap in {"around": lambda model: model, "inside forward": AutocastInside}.items():
        formats: list[str] = []
        model = wrap(DigitsMLP())
        model.register_forward_hook(
            lambda _, __, scores, formats=formats: formats.append(_format(scores))
        )
        with torch.autocast("cpu", torch.float16, enabled=where == "around"):
            batch = digits.images[:ROWS], digits.labels[:ROWS]
            data_parallel.forward_and_backward(model, *batch, cpu_devices(2))
        formats_by_place[where] = formats
    return formats_by_place


# DistributedDataParallel


def run_bfloat16_step() -> None:
    """A worker: one step of DDP under autocast, which bfloat16 needs no scaler for."""
    device, digits = setup(), DigitsDataset()
    images, labels = digits.images[:ROWS].to(device), digits.labels[:ROWS].to(device)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    with torch.autocast(device.type, torch.bfloat16):
        loss = F.cross_entropy(ddp(images), labels)
    loss.backward()
    dist.barrier()


# What a rank holds in a step, alone, with DDP and sharded

WIDTH, DEPTH, BATCH = 256, 4, 512  # BATCH is the global batch
PARTS = ("parameters", "gradients", "optimizer", "unsharded", "buckets", "activations")
ALONE, DDP, SHARDED = "one process", "DDP", "fully_shard"


def by_block(model: DigitsMLP) -> nn.Module:
    """The model sharded layer by layer, as chapter 06 does it."""
    for layer in model.hidden:
        fully_shard(layer)
    return fully_shard(model)


WRAPS: dict[str, Callable[[DigitsMLP], nn.Module]] = {
    ALONE: lambda model: model,
    DDP: DistributedDataParallel,
    SHARDED: by_block,
}


def by_part(bytes_by_way: Mapping[Any, dict[str, int]]) -> pd.DataFrame:
    """A row for each way of training, a column for each part that any of them holds."""
    table = pd.DataFrame(bytes_by_way).T.rename(columns={"optimizer": "optimizer state"})
    return table.loc[:, table.any()]


def memory_of_step(
    way: str, formats: Sequence[torch.dtype] = (torch.float32,)
) -> list[dict[str, int]]:
    """A worker: bytes by part in the third step with Adam, under autocast to each of the formats.

    The ranks share a batch of 512 rows. `way` is one of WRAPS.
    """
    device, digits = setup(), DigitsDataset()
    mine = slice(dist.get_rank(), BATCH, dist.get_world_size())
    images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
    bytes_by_format = []
    for dtype in formats:
        torch.manual_seed(0)
        model = WRAPS[way](DigitsMLP(WIDTH, DEPTH).to(device))
        optimizer = torch.optim.Adam(model.parameters())

        def step(model=model, optimizer=optimizer, dtype=dtype) -> None:
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()

        step()  # Adam makes its state here
        step()  # and DDP its buckets
        with MemoryLedger(model, optimizer) as ledger:
            step()
        bytes_by_format.append({part: getattr(ledger.held, part) for part in PARTS})
        del model, step
    cleanup()
    return bytes_by_format


FORMATS = {
    "float32": torch.float32,
    "float16, autocast": torch.float16,
    "bfloat16, autocast": torch.bfloat16,
}


def memory_by_strategy() -> dict[str, pd.DataFrame]:
    """For each format a table: bytes by part (columns) of rank 0 in each way of training."""
    ways = {ALONE: 1, DDP: 2, SHARDED: 2}  # ranks
    bytes_by_way = {
        way + (f", {ranks} ranks" if ranks > 1 else ""): launch(
            memory_of_step, way, list(FORMATS.values()), ranks=ranks
        )[0]
        for way, ranks in ways.items()
    }
    return {
        name: by_part({way: of_formats[place] for way, of_formats in bytes_by_way.items()})
        for place, name in enumerate(FORMATS)
    }


def memory_by_ranks(counts: Sequence[int] = (1, 2, 4)) -> pd.DataFrame:
    """What rank 0 holds in kB, a column for each part: one process, then DDP on more ranks."""
    held = {
        ranks: launch(memory_of_step, DDP if ranks > 1 else ALONE, ranks=ranks)[0][0]
        for ranks in counts
    }
    table = (by_part(held) / 1e3).round().astype(int).rename("{}, kB".format, axis="columns")
    table.insert(0, "samples", [BATCH // ranks for ranks in counts])
    return table.rename_axis("ranks").reset_index()


@figures.house_style
def memory_plot(tables: dict[str, pd.DataFrame]) -> figures.Picture:
    """A panel for each format, a bar for each way of training, stacked by part."""
    in_mb = {name: table / 1e6 for name, table in tables.items()}
    return figures.bars(
        in_mb, "MB of a rank", "What a rank holds in a step", totals="{:.1f}".format
    )
