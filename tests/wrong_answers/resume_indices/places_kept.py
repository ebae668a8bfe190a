# wrong: a place of the order keeps its rank, so that rank 0 does not get the first one left
# told: as if nothing had happened
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    return [order[place] for place in range(done, n) if place % world_size == rank]
