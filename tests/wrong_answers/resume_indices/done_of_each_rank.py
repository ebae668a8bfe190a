# wrong: each rank leaves out done samples of its own share
# told: Every rank leaves out `done` samples of its own
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    mine = order[rank::world_size]
    return mine[done:]
