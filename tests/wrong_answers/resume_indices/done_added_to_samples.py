# wrong: adds done to the samples, not to their places in the order
# told: Where do the other numbers come from
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    return [order[place] + done for place in range(rank, n - done, world_size)]
