# wrong: all_reduce works on a tensor that nobody keeps
# told: own number, divided by the number of ranks
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    dist.all_reduce(torch.tensor(value))
    return value / dist.get_world_size()
