# wrong: begins at the right place, and takes all from there
# told: Ranks begin at the right places
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    return order[done + rank :]
