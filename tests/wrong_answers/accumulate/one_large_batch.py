# wrong: puts the micro-batches together again
# told: Where are the micro-batches put together again
import torch
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    images = torch.cat([images for images, _ in micro_batches])
    labels = torch.cat([labels for _, labels in micro_batches])
    F.cross_entropy(ddp(images), labels).backward()
    optimizer.step()
