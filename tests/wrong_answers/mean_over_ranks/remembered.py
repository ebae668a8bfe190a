# wrong: the result depends on more than this rank's number
# told: What does your function keep from one call to the next?
# right at: 1
from functools import cache

import torch
import torch.distributed as dist


@cache
def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
