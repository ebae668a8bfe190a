# wrong: whole parts, and the last rank takes all that is left over
# told: More than its share
# right at: 1, 2
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def exact_accuracy(model, dataset, batch_size):
    rank, size = dist.get_rank(), dist.get_world_size()
    each = len(dataset) // size
    end = len(dataset) if rank == size - 1 else (rank + 1) * each
    mine = Subset(dataset, range(rank * each, end))
    right, modes = torch.tensor(0), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(mine, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(right)
    return right.item() / len(dataset)
