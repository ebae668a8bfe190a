# wrong: every rank guesses all samples, so nothing is gained
# told: A rank that guesses everything saves no time
# right at: 1
import torch
from torch.utils.data import DataLoader


def exact_accuracy(model, dataset, batch_size):
    right, modes = torch.tensor(0), {m: m.training for m in model.modules()}
    model.eval()
    with torch.no_grad():
        for features, labels in DataLoader(dataset, batch_size):
            right += (model(features).argmax(dim=1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    return right.item() / len(dataset)
