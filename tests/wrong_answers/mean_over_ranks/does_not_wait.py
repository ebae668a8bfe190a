# wrong: starts the collective and does not wait for it
# told: still at work when your function returned
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    total = torch.tensor(value)
    dist.all_reduce(total, async_op=True)
    return total.item() / dist.get_world_size()
