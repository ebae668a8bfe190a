"""What one training step sends: DDP, by hand, and fully_shard on the whole model or by block."""

from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.distributed_data_parallel import cleanup, forward_and_backward, setup
from ddp_workbook.chapters.fully_sharded import shard_by_block
from ddp_workbook.chapters.fully_sharded_by_hand import FullyShardedByHand
from ddp_workbook.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.planning.messages import Message
from ddp_workbook.planning.speed import in_ring
from ddp_workbook.recording.collectives import record_collectives

DDP, BY_HAND, AS_ONE, BY_BLOCK = "DDP", "by hand", "fully_shard, one unit", "fully_shard, by block"
WAYS = (DDP, BY_HAND, AS_ONE, BY_BLOCK)
ROWS, WIDTH, DEPTH = 64, 64, 3
RING = "kB sent by a rank in a ring"
SHOWN = ("all_reduce", "all_gather", "reduce_scatter")
OPS = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_single": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
}


def shard_as_one(model: nn.Module, device: torch.device) -> nn.Module:
    """`fully_shard` on the whole model and nothing inside it: one unit."""
    return fully_shard(model, mesh=init_device_mesh(device.type, (dist.get_world_size(),)))


def made(way: str, model: DigitsTransformer, device: torch.device) -> nn.Module:
    """The model, ready to be trained in one of the WAYS."""
    if way == DDP:
        gpus = [device] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=gpus)
    if way == BY_HAND:
        return FullyShardedByHand(model, model.blocks)
    return shard_as_one(model, device) if way == AS_ONE else shard_by_block(model, device)


def three_steps(width: int = WIDTH, depth: int = DEPTH) -> None:
    """In each of the WAYS three steps, the third between two barriers.

    That is a step like all later ones: DDP agrees on new buckets at the start of the second.
    """
    device = setup()
    for way in WAYS:
        torch.manual_seed(0)
        model = made(way, DigitsTransformer(width, depth).to(device), device)
        mine = slice(dist.get_rank(), ROWS, dist.get_world_size())
        digits = DigitsDataset()
        images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
        for number in range(3):
            if number == 2:
                dist.barrier()
            forward_and_backward(model, images, labels, ROWS)
            model.zero_grad()
        dist.barrier()
    del model  # a DDP object that outlives its gloo group can hang (torch 2.13)
    cleanup()


def wires_of_a_step(ranks: int = 2, **size: Any) -> dict[str, pd.DataFrame]:
    """For each of the WAYS the operations of rank 0 in one forward and backward, in order.

    Columns as `record_collectives` has them; operations under their short names.
    """
    wire = record_collectives(three_steps, ranks=ranks, **size)
    mine = wire[wire["rank"] == 0].copy()
    mine["op"] = mine["op"].replace(OPS)
    barriers = list(mine["seq"][mine["op"] == "barrier"])
    ends = zip(WAYS, barriers[0::2], barriers[1::2], strict=False)
    return {way: mine[mine["seq"].between(a, b, inclusive="neither")] for way, a, b in ends}


def wire_table(ranks: int = 2, **size: Any) -> pd.DataFrame:
    """A row a way: calls by operation, and the kB that a ring sends from each rank for them."""
    rows = {}
    for way, step in wires_of_a_step(ranks, **size).items():
        sent = [
            in_ring(Message(row.op, "", row.bytes, row.received, ranks))
            for row in step.itertuples()
            if row.op in SHOWN
        ]
        calls = step["op"].value_counts()
        rows[way] = {op: calls.get(op, 0) for op in SHOWN} | {RING: round(sum(sent) / 1000)}
    return pd.DataFrame(rows).T.rename_axis("program")
