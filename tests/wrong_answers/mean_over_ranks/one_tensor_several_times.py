# wrong: the list holds the same tensor world_size times
# told: or one tensor several times?
# right at: 1
import torch
import torch.distributed as dist


def mean_over_ranks(value):
    parts = [torch.zeros(1)] * dist.get_world_size()
    dist.all_gather(parts, torch.tensor([value]))
    return torch.cat(parts).mean().item()
