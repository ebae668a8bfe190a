# wrong: copies only where there are zeros to add
# told: What if no zeros are needed, or there is one rank
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().flatten()
    if len(row) % ranks:
        row = torch.cat([row, row.new_zeros(ranks - len(row) % ranks)])
    length = len(row) // ranks
    start = dist.get_rank() * length
    piece = row[start : start + length]
    return piece if len(row) == tensor.numel() else piece.clone()
