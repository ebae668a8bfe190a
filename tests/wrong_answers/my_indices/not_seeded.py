# wrong: each rank draws what chance gives it
# told: The same call gives other samples the next time
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = torch.randperm(n).tolist() if shuffle else list(range(n))
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
