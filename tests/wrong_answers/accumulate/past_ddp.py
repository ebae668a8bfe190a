# wrong: calls the inner model
# told: ddp was not called
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for images, labels in micro_batches:
        (F.cross_entropy(ddp.module(images), labels) / len(micro_batches)).backward()
    optimizer.step()
