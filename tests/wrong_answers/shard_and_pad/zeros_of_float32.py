# wrong: makes a row of the default dtype
# told: Which line decides in which dtype the zeros
import torch
import torch.distributed as dist


def shard_and_pad(tensor):
    ranks = dist.get_world_size()
    row = torch.zeros(tensor.numel() + -tensor.numel() % ranks)
    row[: tensor.numel()] = tensor.detach().flatten()
    length = len(row) // ranks
    return row[dist.get_rank() * length :][:length].clone()
