# wrong: // instead of /
# told: Which line rounds it to a whole number?
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() // dist.get_world_size()
