# wrong: takes every world_size-th sample, and adds nothing where n is no multiple
# told: Not all ranks get equally many
# told: drop_last=False
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n - n % world_size]
    return order[rank::world_size]
