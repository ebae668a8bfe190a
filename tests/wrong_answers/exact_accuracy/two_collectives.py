# wrong: sends the number of samples, too, which every rank knows
# told: 6 collectives in 3 calls
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right, was_training = torch.tensor(0), model.training
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    model.train(was_training)
    seen = torch.tensor(len(mine))
    dist.all_reduce(right)
    dist.all_reduce(seen)
    return (right / seen).item()
