# wrong: returns a column of numbers
# told: the shape is not. How many dimensions
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().flatten()
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    length = len(row) // ranks
    return row[dist.get_rank() * length :][:length].unsqueeze(1).clone()
