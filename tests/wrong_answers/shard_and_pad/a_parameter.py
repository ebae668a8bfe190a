# wrong: makes a parameter of the piece
# told: The caller makes parameters of the pieces
import torch
import torch.distributed as dist
from torch import nn


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = tensor.detach().flatten()
    row = torch.cat([row, row.new_zeros(-len(row) % ranks)])
    length = len(row) // ranks
    return nn.Parameter(row[dist.get_rank() * length :][:length].clone(), tensor.requires_grad)
