# wrong: makes the list longer, or shorter, before it is shuffled
# told: extended first and shuffled afterwards
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    each = n // world_size if drop_last else -(-n // world_size)
    order = [place % n for place in range(each * world_size)]
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = [order[i] for i in torch.randperm(len(order), generator=generator)]
    return order[rank::world_size]
