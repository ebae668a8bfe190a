# wrong: gathers tensors of unlike length as they are
# told: One collective got tensors of different sizes
# right at: 1
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    everyone = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, tensor)
    return everyone
