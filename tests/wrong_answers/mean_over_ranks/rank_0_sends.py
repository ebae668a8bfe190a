# wrong: a broadcast adds nothing up
# told: rank 0's number on every rank
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.broadcast(total, src=0)
    return total.item()
