# wrong: no_sync around backward alone: the forward has decided already
# told: not in the forward before it
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        if number < len(micro_batches):
            with ddp.no_sync():
                loss.backward()
        else:
            loss.backward()
    optimizer.step()
