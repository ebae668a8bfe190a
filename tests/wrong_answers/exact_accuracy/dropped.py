# wrong: drop_last makes the ranks equal, and leaves samples out
# told: Does a sampler or a loader drop
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def exact_accuracy(model, dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=False, drop_last=True)
    right, modes = torch.tensor(0), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(dataset, batch_size, sampler=sampler):
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(right)
    return right.item() / len(dataset)
