# wrong: deals to the last rank first
# told: Each list is right, but on another rank
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    return order[done + world_size - 1 - rank :: world_size]
