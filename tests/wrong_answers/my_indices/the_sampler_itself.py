# wrong: lets DistributedSampler do it
# told: a DistributedSampler is asked
from torch.utils.data import DistributedSampler


def my_indices(n, rank, world_size, epoch=0, shuffle=True, drop_last=False, seed=0):
    sampler = DistributedSampler(
        range(n), world_size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    return list(sampler)
