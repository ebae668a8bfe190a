# wrong: returns a tensor
# told: This is a tensor; a float is asked for
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total / dist.get_world_size()
