# wrong: fills up with samples 0, 1, 2 instead of the first ones of the order
# told: Samples 0, 1 and so on come again
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)
    order += [i % n for i in range(each * world_size - n)]
    return order[: each * world_size][rank::world_size]
