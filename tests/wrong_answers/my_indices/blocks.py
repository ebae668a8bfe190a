# wrong: each rank gets a block of the order instead of every world_size-th sample
# told: Each rank has a block of neighbours
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else (n + world_size - 1) // world_size
    order = [order[place % n] for place in range(each * world_size)]
    return order[rank * each : (rank + 1) * each]
