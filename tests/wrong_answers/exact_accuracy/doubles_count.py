# wrong: the sampler's doubles count, in both numbers
# told: doubles count like other
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def exact_accuracy(model, dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=False)
    counts, modes = torch.zeros(2, dtype=torch.float64), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(dataset, batch_size, sampler=sampler):
            counts[0] += (model(features).argmax(dim=1) == labels).sum()
            counts[1] += len(labels)
    for module, mode in modes.items():
        module.training = mode
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
