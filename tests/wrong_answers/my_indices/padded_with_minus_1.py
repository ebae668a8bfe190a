# wrong: fills up with -1, which is the index of no sample
# told: Where do the other numbers come from
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n - n % world_size]
    else:
        order += [-1] * (-n % world_size)
    return order[rank::world_size]
