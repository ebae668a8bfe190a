# wrong: keeps as many samples as are left, but from the beginning of the order
# told: At which end are those that are done
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    return order[: n - done][rank::world_size]
