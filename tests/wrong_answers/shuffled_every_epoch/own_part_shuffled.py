# wrong: deals once, and shuffles each rank's own part
# told: Which comes first, shuffling or dealing
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    order = list(range(len(dataset)))
    order += order[: -len(order) % dist.get_world_size()]
    mine = Subset(dataset, order[dist.get_rank() :: dist.get_world_size()])
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(mine, batch_size, shuffle=True, generator=generator)
    trained_on = []
    for epoch in range(epochs):
        trained_on.append([])
        for samples in loader:
            trained_on[epoch] += samples.tolist()
    return trained_on
