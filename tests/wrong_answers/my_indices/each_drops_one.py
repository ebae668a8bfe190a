# wrong: with drop_last every rank leaves out its last sample, also one that has no more than others
# told: Every rank leaves out one
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if not drop_last:
        order = [order[place % n] for place in range(-(-n // world_size) * world_size)]
    mine = order[rank::world_size]
    return mine[:-1] if drop_last and n % world_size else mine
