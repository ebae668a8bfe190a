# wrong: adds the order once, which is too little where it is shorter than half of the ranks
# told: still too short. How often must the order be repeated
import torch


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    order = list(range(n))
    if shuffle:
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n // world_size * world_size]
    elif n % world_size:
        order += order[: world_size - n % world_size]
    return order[rank::world_size]
