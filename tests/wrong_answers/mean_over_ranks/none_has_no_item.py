# wrong: goes on with what all_reduce returns
# told: What holds the sum?
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = dist.all_reduce(torch.tensor(value))
    return total.item() / dist.get_world_size()
