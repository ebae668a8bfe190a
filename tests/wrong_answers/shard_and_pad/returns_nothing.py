# wrong: makes the tensor itself the piece, and returns nothing
# told: Does the function return its result
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().flatten()
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    tensor = row.reshape(ranks, len(row) // ranks)[dist.get_rank()].clone()
