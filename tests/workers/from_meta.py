"""A model too large to be built on one rank: meta, fully_shard, to_empty, load."""

import torch

from ddp_workbook.chapters.digits import DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.fully_sharded import shard_by_block, whole_weights


def sharded_from_meta() -> tuple[tuple, int, bool]:
    """The shape of a shard, the bytes before to_empty, and whether the loaded weights are there."""
    device = setup()
    torch.manual_seed(0)
    weights = DigitsTransformer().state_dict()
    with torch.device("meta"):
        model = DigitsTransformer()
    sharded = shard_by_block(model, device)
    shards = [parameter.to_local() for parameter in sharded.parameters()]
    before = sum(shard.nbytes for shard in shards if not shard.is_meta)
    sharded.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in sharded.named_parameters():
            own = torch.distributed.tensor.distribute_tensor(
                weights[name], parameter.device_mesh, parameter.placements
            )
            parameter.copy_(own)
    sharded(torch.rand(4, 64, device=device)).sum().backward()
    shape = tuple(sharded.blocks[0].mlp[0].weight.to_local().shape)
    loaded = whole_weights(sharded)
    cleanup()
    return shape, before, all(torch.equal(loaded[name], weights[name]) for name in weights)
