# wrong: with drop_last nothing is added, and nothing is cut off either
# told: Not all ranks get equally many
# told: drop_last=True
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    total = n if drop_last else -(-n // world_size) * world_size
    return [order[place % n] for place in range(rank, total, world_size)]
