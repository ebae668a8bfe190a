# wrong: the mean of the batches' accuracies, though the last batch is smaller
# told: This is a mean of batches
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    totals, modes = torch.zeros(2), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right = (model(features).argmax(dim=1) == labels).float()
            totals += torch.tensor([right.mean(), 1])
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()
