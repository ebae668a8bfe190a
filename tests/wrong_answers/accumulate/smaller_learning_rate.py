# wrong: divides the learning rate instead of the losses
# told: the learning rate is
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    for group in optimizer.param_groups:
        group["lr"] /= len(micro_batches)
    optimizer.zero_grad()
    with ddp.no_sync():
        for images, labels in micro_batches[:-1]:
            F.cross_entropy(ddp(images), labels).backward()
    images, labels = micro_batches[-1]
    F.cross_entropy(ddp(images), labels).backward()
    optimizer.step()
