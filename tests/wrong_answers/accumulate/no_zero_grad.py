# wrong: adds to what the step before has left
# told: What an earlier step left
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    with ddp.no_sync():
        for images, labels in micro_batches[:-1]:
            (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    images, labels = micro_batches[-1]
    (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    optimizer.step()
    optimizer.zero_grad()
