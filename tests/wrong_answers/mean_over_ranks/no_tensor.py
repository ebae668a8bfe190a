# wrong: hands a number to the collective
# told: A collective takes a tensor, and value is a number
import torch.distributed as dist


def mean_over_ranks(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()
