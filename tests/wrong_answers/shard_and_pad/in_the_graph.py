# wrong: leaves the piece in autograd's graph, which holds the parameter
# told: the graph leads back to it
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.flatten()
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    length = len(row) // ranks
    start = dist.get_rank() * length
    return row[start : start + length].clone()
