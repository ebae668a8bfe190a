# wrong: sets all modules back to the mode of the whole model, also a part that was frozen
# told: A part of the model was in evaluation mode
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
    dist.all_reduce(right)
    return right.item() / len(dataset)
