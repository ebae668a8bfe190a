# wrong: seeds the generator that everybody else in the process uses, too
# told: it changed the seed of torch
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    torch.manual_seed(seed + epoch)
    order = torch.randperm(n).tolist()
    return order[done + rank :: world_size]
