"""Weights from one file into a model that is cut: five ways, and what each holds and sends.

The model is built on `meta`, where parameters have shapes and no memory, and sharded there. Each
way then fills the shards. `folder` holds the same weights twice: `model.pt`, as one process saves
its state dict, and `shards`, a folder of DCP.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.tensor import distribute_tensor

from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded import SEED, shard_by_block, whole_weights
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.recording.dispatch_mode import Recorder
from manyranks.recording.memory import MemoryLedger

WIDTH, DEPTH, KB = 64, 3, 1000


def load_on_every_rank(folder: Path, model: nn.Module) -> None:
    whole = torch.load(folder / "model.pt", weights_only=True)
    set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True))


def broadcast_from_rank_0(folder: Path, model: nn.Module) -> None:
    first = dist.get_rank() == 0
    full = torch.load(folder / "model.pt", weights_only=True) if first else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, full, options=options)


def scatter_from_rank_0(folder: Path, model: nn.Module) -> None:
    first = dist.get_rank() == 0
    full = torch.load(folder / "model.pt", weights_only=True, mmap=True) if first else {}
    shards = {}
    for name, shard in model.state_dict().items():
        tensor = full[name] if first else torch.empty(shard.shape, dtype=shard.dtype)
        shards[name] = distribute_tensor(tensor, shard.device_mesh, shard.placements)
    model.load_state_dict(shards, assign=True)


def load_own_rows(folder: Path, model: nn.Module) -> None:
    full = torch.load(folder / "model.pt", weights_only=True, mmap=True)
    shards = {}
    for name, shard in model.state_dict().items():
        place = {"device_mesh": shard.device_mesh, "placements": shard.placements}
        shards[name] = distribute_tensor(full[name], **place, src_data_rank=None)
    model.load_state_dict(shards, assign=True)


def load_with_dcp(folder: Path, model: nn.Module) -> None:
    model.to_empty(device=next(model.parameters()).device_mesh.device_type)
    shards = model.state_dict()
    dcp.load(shards, checkpoint_id=folder / "shards")  # in place


Fill = Callable[[Path, nn.Module], None]
WAYS: dict[str, Fill] = {
    "every rank reads": load_on_every_rank,
    "rank 0 broadcasts": broadcast_from_rank_0,
    "rank 0 scatters": scatter_from_rank_0,
    "each takes its rows": load_own_rows,
    "DCP reads": load_with_dcp,
}
MMAP_RANKS: dict[Fill, str] = {
    scatter_from_rank_0: "rank 0",
    load_own_rows: "every rank",
}  # the file, by mmap


class FillResult(NamedTuple):
    """What a way did in one rank; bytes."""

    shards: int  # of the model, afterwards
    peak: int  # all tensors at the moment when they are the most, mapped ones included
    mapped: int  # of these, a mapped file: the system reads what is touched, and may drop it
    wire: list[dict]
    weights: dict[str, Tensor]  # whole, afterwards


def save(folder: Path, width: int = WIDTH, depth: int = DEPTH) -> dict[str, Tensor]:
    """Write the weights of a model into `folder`, as one file and as shards; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    weights = DigitsTransformer(width, depth).state_dict()
    torch.save(weights, folder / "model.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.13 warns of its own use of a group
        torch_save_to_dcp(folder / "model.pt", folder / "shards")
    return weights


def on_meta(device: torch.device, width: int = WIDTH, depth: int = DEPTH) -> DigitsTransformer:
    """The model without memory, cut by block."""
    with torch.device("meta"):
        model = DigitsTransformer(width, depth)
    return shard_by_block(model, device)


def measure_ways(
    folder: Path, ways: dict[str, Fill], width: int = WIDTH, depth: int = DEPTH
) -> dict[str, FillResult]:
    """A worker: fill a model in each of the ways."""
    device = setup()
    size = sum(4 * p.numel() for p in on_meta(device, width, depth).parameters())
    results = {}
    for name, fill in ways.items():
        model, wire = on_meta(device, width, depth), list[dict]()
        with warnings.catch_warnings(), MemoryLedger(model) as ledger, Recorder(wire):
            warnings.simplefilter("ignore")  # torch 2.13 warns of its own use of a group
            fill(folder, model)
        who = MMAP_RANKS.get(fill)
        maps = who == "every rank" or who == f"rank {dist.get_rank()}"
        shards = sum(p.to_local().nbytes for p in model.parameters())
        peak = ledger.held.peak
        results[name] = FillResult(shards, peak, size * maps, wire, whole_weights(model))
    cleanup()
    return results


def ways(folder: Path, ranks: int = 4) -> list[dict[str, FillResult]]:
    """All WAYS on so many ranks: a dict for each rank. `folder` is that of `save`."""
    return launch(measure_ways, folder, WAYS, ranks=ranks, timeout=180)


def table(results: list[dict[str, FillResult]]) -> pd.DataFrame:
    """For each way in kB: what ranks hold at the peak beside a mapped file, and what is sent.

    Sent is counted in tensors of weights: calls, bytes that rank 0 hands in, and bytes that the
    last rank receives.
    """
    rows = {}
    for way in results[0]:
        first, last = results[0][way], results[-1][way]
        inputs, outputs = (
            [row for row in result.wire if row["dtype"].startswith("float")]
            for result in (first, last)
        )
        ops = {row["op"] for row in inputs}
        rows[way] = {
            "rank 0 holds": (first.peak - first.mapped) / KB,
            "another holds": (last.peak - last.mapped) / KB,
            "calls": f"{len(inputs)} {', '.join(ops)}" if ops else "none",
            "rank 0 hands in": sum(row["bytes"] for row in inputs) / KB,
            "another receives": sum(row["received"] for row in outputs) / KB,
        }
    return pd.DataFrame(rows).T.infer_objects().round(1).rename_axis("kB")


@figures.house_style
def bars(results: list[dict[str, FillResult]]) -> figures.Picture:
    """What rank 0 and the last rank hold at the peak: shards, what is whole, a mapped file."""
    panels = {
        f"rank {rank}": pd.DataFrame(
            {
                way: {
                    "parameters": result.shards / KB,
                    "unsharded": (result.peak - result.mapped - result.shards) / KB,
                    "mapped file": result.mapped / KB,
                }
                for way, result in results[rank].items()
            }
        ).T
        for rank in (0, len(results) - 1)
    }
    about = "What a rank holds while a model is filled from a file"
    return figures.bars(panels, "kB at the peak", about)
