# wrong: sorts what a rank has got
# told: In which order are they dealt
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)
    return sorted(order[place % n] for place in range(rank, each * world_size, world_size))
