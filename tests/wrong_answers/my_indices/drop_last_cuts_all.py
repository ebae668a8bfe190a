# wrong: where n is a multiple of world_size, [:-0] leaves nothing
# told: More is cut off than necessary
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: -(n % world_size)]
    else:
        order = [order[place % n] for place in range(-(-n // world_size) * world_size)]
    return order[rank::world_size]
