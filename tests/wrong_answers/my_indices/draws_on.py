# wrong: seeds with the seed alone, and draws an order for each epoch up to this one
# told: The generator is seeded for epoch 0 and then goes on drawing
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(epoch + 1):
            order = torch.randperm(n, generator=generator).tolist()
    each = n // world_size if drop_last else -(-n // world_size)
    return [order[place % n] for place in range(rank, each * world_size, world_size)]
