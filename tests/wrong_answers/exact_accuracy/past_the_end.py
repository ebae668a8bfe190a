# wrong: gives each rank a block of the same length, also where the data set has ended
# told: A rank asks for a sample after the last one
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    share = -(-len(dataset) // dist.get_world_size())
    first = dist.get_rank() * share
    mine = Subset(dataset, range(first, first + share))
    right, modes = torch.tensor(0), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(right)
    return right.item() / len(dataset)
