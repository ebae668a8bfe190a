# wrong: deals first, and shuffles what a rank has got
# told: dealt first, then shuffled
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    each = n // world_size if drop_last else -(-n // world_size)
    own = [place % n for place in range(rank, each * world_size, world_size)]
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        own = [own[place] for place in torch.randperm(len(own), generator=generator)]
    return own
