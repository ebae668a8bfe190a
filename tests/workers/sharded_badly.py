"""Bad input to the two programs of chapter 06, as a reader could have written it."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_workbook.chapters import fully_sharded, fully_sharded_by_hand
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


class ScalarInside(nn.Module):
    """A parameter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * self.scale


def choose_blocks(way: str, kind: str) -> None:
    """Blocks that are not modules."""
    setup()
    model = Blocks()
    blocks = {
        "a list in a list": [model.blocks],
        "names": ["blocks.0", "blocks.1"],
        "one module": model.first[0],
    }[kind]
    train_a_step(WAYS[way](model, blocks))


def two_dtypes(way: str) -> None:
    """A bias in half precision beside a weight that is not."""
    setup()
    model = Blocks()
    model.blocks[0][0].bias.data = model.blocks[0][0].bias.data.half()
    train_a_step(WAYS[way](model, model.blocks))


def scalar(way: str) -> None:
    """A scalar parameter in a block."""
    setup()
    model = Blocks(ScalarInside)
    train_a_step(WAYS[way](model, model.blocks))


def no_group(way: str) -> None:
    """No rank called init_process_group."""
    model = Blocks()
    WAYS[way](model, model.blocks)


def wrong_shape(way: str) -> None:
    """Input with one column too few."""
    setup()
    model = Blocks()
    WAYS[way](model, model.blocks)(torch.ones(2, WIDTH - 1))


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


def sizes(way: str, **sizes: int) -> None:
    """The chapter's own program with these sizes."""
    program = {"by hand": fully_sharded_by_hand, "fully_shard": fully_sharded}[way]
    program.train(**{"epochs": 1} | sizes)


def train_a_step(sharded: nn.Module) -> None:
    """Forward and backward."""
    sharded(torch.ones(2, WIDTH)).sum().backward()
