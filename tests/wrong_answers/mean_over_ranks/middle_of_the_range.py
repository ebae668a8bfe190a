# wrong: the mean of the smallest and the largest, which is right for two numbers
# told: This is the middle between
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    low, high = torch.tensor(value), torch.tensor(value)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    return (low.item() + high.item()) / 2
