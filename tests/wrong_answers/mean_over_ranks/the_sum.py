# wrong: does not divide
# told: This is the sum
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item()
