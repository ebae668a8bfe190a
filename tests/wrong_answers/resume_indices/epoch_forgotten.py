# wrong: goes on in the order of epoch 0
# told: This is the order of epoch 0
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
    return order[done + rank :: world_size]
