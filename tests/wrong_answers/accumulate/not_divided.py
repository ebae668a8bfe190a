# wrong: adds up the means of the micro-batches
# told: Is a sum of means a mean?
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    with ddp.no_sync():
        for images, labels in micro_batches[:-1]:
            F.cross_entropy(ddp(images), labels).backward()
    images, labels = micro_batches[-1]
    F.cross_entropy(ddp(images), labels).backward()
    optimizer.step()
