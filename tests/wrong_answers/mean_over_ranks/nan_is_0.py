# wrong: puts 0 in the place of a nan
# told: A nan counts as 0 here
# right at: 1
import math

import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(0.0 if math.isnan(value) else value)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
