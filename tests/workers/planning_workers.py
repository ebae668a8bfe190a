"""Real training steps of small decoders, for what plans say of large ones."""

import gc
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.planning.decoder import Decoder, DecoderShape
from ddp_workbook.planning.sharding import fake_group, mesh_of
from ddp_workbook.recording.dispatch_mode import Recorder
from ddp_workbook.recording.memory import Held, MemoryLedger

# Rows that do not divide by the ranks, grouped queries, a root that is no power of two.
SMALL = DecoderShape("small", 3, 24, 6, 2, 50, 101)
TIED = DecoderShape("tied", 3, 24, 4, 4, 96, 101, tied=True, gpt=True, positions=16)


def on_fake_ranks(shape: DecoderShape, ranks: int, **ways: Any) -> tuple[Held, list[tuple]]:
    """What rank 0 of `ranks` fake ranks holds and sends in its third step."""
    with fake_group(ranks):
        return third_step(shape, **ways)


def on_real_ranks(shape: DecoderShape, *ways: dict) -> list[tuple[Held, list[tuple]]]:
    """The same on each of the ranks that were launched, for one way of training after the other."""
    dist.init_process_group("gloo")
    found = []
    for way in ways:
        found.append(third_step(shape, **way))
        dist.barrier()
    dist.destroy_process_group()
    return found


def third_step(
    shape: DecoderShape, strategy: str = "fully_shard", tokens: int = 1, **policies: Any
) -> tuple[Held, list[tuple]]:
    """Held, and (op, bytes, received) of each call, of a step in which nothing happens first."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = wrapped(shape, strategy, **policies)
    optimizer = optimizer_of(model, strategy)
    batch = torch.arange(tokens)[None] % shape.vocabulary
    for _ in range(2):
        step(model, optimizer, batch)
    gc.collect()
    rows: list[dict] = []
    with Recorder(rows), MemoryLedger(model, optimizer) as ledger:
        step(model, optimizer, batch)
    return ledger.held, [(row["op"], row["bytes"], row["received"]) for row in rows]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """One step; `zero_grad` comes last, so that the next one begins without gradients."""
    scores = model(batch)
    F.cross_entropy(scores.flatten(0, 1).float(), batch.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def wrapped(
    shape: DecoderShape,
    strategy: str,
    shards: int | None = None,
    offload: bool = False,
    dtypes: tuple[torch.dtype | None, torch.dtype | None] = (None, None),
    reshard_after_forward: bool | int = True,
    bucket_cap_mb: float | None = None,
) -> nn.Module:
    """The model, ready to train."""
    model = Decoder(shape, shape.layers)
    if strategy in ("DDP", "ZeRO-1"):
        return DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
    ranks = dist.get_world_size()
    mesh = mesh_of(shards or ranks, ranks // (shards or ranks))
    policies: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(*dtypes)}
    if offload:
        policies["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard_after_forward, **policies)
    return fully_shard(model, **policies)


def optimizer_of(model: nn.Module, strategy: str) -> torch.optim.Optimizer:
    """AdamW, for ZeRO-1 with its state on the rank that updates a tensor."""
    if strategy == "ZeRO-1":
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
