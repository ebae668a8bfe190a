# wrong: a dtype that is too small for the samples of a large data set
# told: Which numbers does the dtype hold
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator, dtype=torch.int16)
    return order[done + rank :: world_size].tolist()
