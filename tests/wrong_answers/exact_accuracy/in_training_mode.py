# wrong: guesses in the mode in which it finds the model
# told: Dropout and similar layers are active
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right = torch.tensor(0)
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(dataset)
