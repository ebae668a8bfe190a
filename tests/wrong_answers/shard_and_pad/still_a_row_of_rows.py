# wrong: keeps a dimension of length 1
# told: the shape is not. How many dimensions
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().flatten()
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    rows = row.reshape(ranks, len(row) // ranks)
    return rows[dist.get_rank() : dist.get_rank() + 1].clone()
