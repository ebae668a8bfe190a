# wrong: no_sync for the last one alone
# told: which backward must send?
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        ddp.require_backward_grad_sync = number < len(micro_batches)
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        loss.backward()
    ddp.require_backward_grad_sync = True
    optimizer.step()
