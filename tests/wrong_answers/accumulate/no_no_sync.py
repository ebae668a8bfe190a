# wrong: lets every backward send
# told: Every backward sends all gradients
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for images, labels in micro_batches:
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        loss.backward()
    optimizer.step()
