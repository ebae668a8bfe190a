# wrong: sorts what a rank has got
# told: In which order are they dealt
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    return sorted(order[done + rank :: world_size])
