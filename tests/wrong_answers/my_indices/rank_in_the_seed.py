# wrong: every rank shuffles in its own way, so that samples come twice and others never
# told: Each rank has its own order
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch + rank)
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
