# wrong: the median of the numbers, which is also called an average
# told: This is the median
# right at: 1, 2
import statistics

import torch.distributed as dist


def mean_over_ranks(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return statistics.median(values)
