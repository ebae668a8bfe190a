# wrong: shuffles what is left once more
# told: in another order than the epoch's
# told: What is shuffled again
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    left = torch.randperm(n, generator=generator)[done:]
    generator.manual_seed(seed + epoch)
    left = left[torch.randperm(n - done, generator=generator)]
    return left[rank::world_size].tolist()
