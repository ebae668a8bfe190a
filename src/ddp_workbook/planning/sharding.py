"""PyTorch's own `fully_shard` for any number of ranks, in one process, without memory.

The `fake` backend has a world of any size and sends nothing; tensors on `meta` have shapes and no
storage. Together they show rank 0's shards of a model that this machine could not hold.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_workbook.planning.decoder import DecoderShape
from ddp_workbook.planning.sizes import PlanRefused


def local_shapes(
    shape: DecoderShape, shards: int, replicas: int = 1, *, every_block: bool = False
) -> list[list[torch.Size]]:
    """Shapes of the shards of rank 0, by unit: the local tensors of the model's DTensors.

    All blocks are alike, so one is cut and counted for each layer; `every_block` builds and cuts
    them all. Raises PlanRefused in a process that belongs to a process group already.
    """
    model = shape.build(layers=None if every_block else 1)
    with fake_group(shards * replicas):
        shard_each_block(model, mesh_of(shards, replicas))
        root, *blocks = [
            [parameter.to_local().shape for parameter in unit] for unit in units_of(model)
        ]
    return [root, *(blocks if every_block else blocks * shape.layers)]


def shard_each_block(model: nn.Module, mesh: DeviceMesh) -> None:
    """`fully_shard` on each block, then on the root, as a training program does."""
    for block in model.blocks:
        # How a block is cut does not depend on what happens after its forward, and True would cut
        # it a second time here.
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)


def units_of(model: nn.Module) -> list[list[nn.Parameter]]:
    """The root's own parameters, then those of each block."""
    return [model.own_parameters(), *(list(block.parameters()) for block in model.blocks)]


def mesh_of(shards: int, replicas: int) -> DeviceMesh:
    """A mesh of one dimension, or for HSDP of two: replicas, then shards."""
    if replicas == 1:
        return init_device_mesh("cpu", (shards,))
    return init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))


@contextmanager
def fake_group(ranks: int, rank: int = 0) -> Iterator[None]:
    """Be `rank` of `ranks` inside the block. Raises PlanRefused if there is a group already."""
    if dist.is_initialized():
        raise PlanRefused(
            "plan needs a process group of its own, but this process already belongs to one "
            f"(as rank {dist.get_rank()} of {dist.get_world_size()}). Call plan outside the "
            "ranks: in a cell without %%ranks, or after destroy_process_group()."
        )
    from torch.testing._internal.distributed.fake_pg import FakeStore  # also registers the backend

    hook = sys.excepthook  # init_process_group puts "[rank0]:" before all later errors (torch 2.13)
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
