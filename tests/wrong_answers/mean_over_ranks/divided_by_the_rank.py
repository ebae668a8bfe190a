# wrong: divides by get_rank, which is 0 on rank 0
# told: Ranks are counted from 0
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() / dist.get_rank()
