# wrong: makes the order longer with its last samples instead of its first ones
# told: Only the last sample comes again
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n - n % world_size]
    while len(order) % world_size:
        order.append(order[n - 1])
    return order[rank::world_size]
