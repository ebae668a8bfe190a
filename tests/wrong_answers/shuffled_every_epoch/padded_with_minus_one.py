# wrong: makes the ranks equal with -1, which is no sample
# told: These numbers are not in the data set
# right at: 1
import torch
import torch.distributed as dist


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    rank, size = dist.get_rank(), dist.get_world_size()
    trained_on = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(len(dataset), generator=generator).tolist()
        order += [-1] * (-len(order) % size)
        trained_on.append(order[rank::size])
    return trained_on
