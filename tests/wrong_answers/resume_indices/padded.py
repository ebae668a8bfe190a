# wrong: makes what is left longer, so that all ranks get equally many, as the sampler does
# told: Some samples are added
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    left = order[done:]
    if left:
        each = -(-len(left) // world_size)
        left = [left[place % len(left)] for place in range(each * world_size)]
    return left[rank::world_size]
