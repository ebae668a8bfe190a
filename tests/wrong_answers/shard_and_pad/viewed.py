# wrong: makes a row with view
# told: view needs elements that are already contiguous
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().view(-1)
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    length = len(row) // ranks
    return row[dist.get_rank() * length :][:length].clone()
