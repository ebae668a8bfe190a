# wrong: reduce gives the sum to one rank
# told: After reduce, one rank alone has the sum
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.reduce(total, dst=0)
    return total.item() / dist.get_world_size()
