# wrong: leaves the model in evaluation mode
# told: The model is left in evaluation mode
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right = torch.tensor(0)
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(dataset)
