# wrong: MAX instead of SUM
# told: This is the largest number
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total, op=dist.ReduceOp.MAX)
    return total.item()
