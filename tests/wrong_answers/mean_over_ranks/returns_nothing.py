# wrong: returns what all_reduce returns
# told: Does the function return what it has computed?
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    return dist.all_reduce(torch.tensor(value))
