# wrong: deals what is left in blocks
# told: a block of neighbours
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    left = order[done:]
    each = -(-len(left) // world_size)
    return left[rank * each : (rank + 1) * each]
