# wrong: makes a row of what has several dimensions, and forgets what has none
# told: A tensor may have any number of dimensions
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach()
    if row.dim() > 1:
        row = row.flatten()
    row = torch.cat([row, row.new_zeros(-tensor.numel() % ranks)])
    length = len(row) // ranks
    return row[dist.get_rank() * length :][:length].clone()
