# wrong: makes a step after every micro-batch
# told: There is an optimizer step for each micro-batch
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    for images, labels in micro_batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        loss.backward()
        optimizer.step()
