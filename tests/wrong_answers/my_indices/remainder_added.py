# wrong: adds what n is above a multiple, not what is missing to the next one
# told: How long must the order be
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    rest = n % world_size
    order = order[: n - rest] if drop_last else order + order[:rest]
    return order[rank::world_size]
