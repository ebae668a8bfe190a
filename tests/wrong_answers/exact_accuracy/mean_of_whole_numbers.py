# wrong: lets the all-reduce divide whole numbers
# told: A fraction does not fit into a tensor of whole numbers
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    right, modes = torch.tensor(0), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(right, op=dist.ReduceOp.AVG)
    return right.item() * dist.get_world_size() / len(dataset)
