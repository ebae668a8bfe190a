# wrong: rank 0 alone comes to the collective
# told: rank 1 has returned without it
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    if dist.get_rank() == 0:
        dist.all_reduce(total)
    return total.item() / dist.get_world_size()
