# wrong: a rank with 0 stays away from the collective
# told: the first call was right
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    if value != 0:
        dist.all_reduce(total)
    return total.item() / dist.get_world_size()
