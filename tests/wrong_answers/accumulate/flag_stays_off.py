# wrong: leaves DDP unable to send
# told: require_backward_grad_sync is False
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    ddp.require_backward_grad_sync = False
    for images, labels in micro_batches[:-1]:
        (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    ddp.require_backward_grad_sync = True
    images, labels = micro_batches[-1]
    (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    ddp.require_backward_grad_sync = False
    optimizer.step()
