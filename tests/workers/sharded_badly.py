"""Bad input to the two programs of chapter 06, as a reader could have written it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded_by_hand import FullyShardedByHand
from tests.workers.sharded import WIDTH, Blocks


def by_hand(model: nn.Module, blocks: object) -> nn.Module:
    """As in fully_sharded_by_hand.py."""
    return FullyShardedByHand(model, blocks)


def by_torch(model: nn.Module, blocks: object) -> nn.Module:
    """As in fully_sharded.py."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


WAYS = {"by hand": by_hand, "fully_shard": by_torch}


def no_group(way: str) -> None:
    """No rank called init_process_group."""
    model = Blocks()
    WAYS[way](model, model.blocks)


def one_rank_raises(way: str) -> None:
    """Only rank 1 gets such input."""
    setup()
    model = Blocks()
    sharded = WAYS[way](model, model.blocks)
    sharded(torch.ones(2, WIDTH - (dist.get_rank() == 1))).sum().backward()


def one_rank_leaves_a_step_out(way: str) -> None:
    """Rank 1 has no batch, and continues to the end."""
    setup()
    model = Blocks()
    sharded = WAYS[way](model, model.blocks)
    if dist.get_rank() == 0:
        sharded(torch.ones(2, WIDTH)).sum().backward()
    cleanup()


def one_rank_evaluates(way: str) -> None:
    """Only rank 0 runs a forward after the step."""
    setup()
    model = Blocks()
    sharded = WAYS[way](model, model.blocks)
    train_a_step(sharded)
    if dist.get_rank() == 0:
        with torch.no_grad():
            sharded(torch.ones(2, WIDTH))
    cleanup()


def train_a_step(sharded: nn.Module) -> None:
    """Forward and backward."""
    sharded(torch.ones(2, WIDTH)).sum().backward()
