# wrong: returns what all_reduce returns
# told: A collective fills its tensors and returns None
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    return dist.all_reduce(torch.tensor(value))
