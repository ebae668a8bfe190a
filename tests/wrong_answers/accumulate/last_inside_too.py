# wrong: the last micro-batch is inside no_sync, so nothing is ever averaged
# told: which one was that?
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    with ddp.no_sync():
        for images, labels in micro_batches:
            loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
            loss.backward()
    optimizer.step()
