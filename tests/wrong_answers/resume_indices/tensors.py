# wrong: a list of tensors with one number each
# told: a list with a tensor in it
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    return list(torch.randperm(n, generator=generator)[done + rank :: world_size])
