# wrong: fills up with the first sample, again and again; with two ranks one is added at most
# told: Only the first sample comes again
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n - n % world_size]
    while len(order) % world_size:
        order.append(order[0])
    return order[rank::world_size]
