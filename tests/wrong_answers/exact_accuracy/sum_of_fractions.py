# wrong: adds up fractions, which are rounded
# told: Right except for the last digit
# right at: 1
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
    share = right.double() / len(dataset)
    dist.all_reduce(share)
    return share.item()
