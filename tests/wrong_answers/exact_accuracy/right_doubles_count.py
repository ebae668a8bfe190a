# wrong: divides by the samples, but counts the right guesses of doubles, too
# told: right guesses of doubles count
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def exact_accuracy(model, dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=False)
    right, modes = torch.tensor(0), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(dataset, batch_size, sampler=sampler):
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(right)
    return right.item() / len(dataset)
