# wrong: an empty rest is taken for no stop at all
# told: All samples are done
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    left = order[done:] or order
    return left[rank::world_size]
