# wrong: the sampler's doubles count, in both numbers
# told: doubles count like others
# right at: 1
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def exact_accuracy(model, dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=False)
    counts, was_training = torch.zeros(2), model.training
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(dataset, batch_size, sampler=sampler):
            counts[0] += (model(features).argmax(dim=1) == labels).sum()
            counts[1] += len(labels)
    model.train(was_training)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
