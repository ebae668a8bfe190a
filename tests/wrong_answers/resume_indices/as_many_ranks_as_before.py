# wrong: takes this run's share of done, which is another if the number of ranks was another
# told: as many ranks as now
import torch


def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    mine = order[rank::world_size]
    return mine[done // world_size :]
