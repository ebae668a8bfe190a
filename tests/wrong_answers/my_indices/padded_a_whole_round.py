# wrong: adds world_size samples where n is a multiple, and nothing is missing
# told: More is added than necessary
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n - n % world_size]
    else:
        total = (n // world_size + 1) * world_size
        order = (order * total)[:total]
    return order[rank::world_size]
