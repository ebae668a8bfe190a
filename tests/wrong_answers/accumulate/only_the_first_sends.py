# wrong: no_sync for all but the first
# told: Only the first micro-batch was averaged
# right at: 1
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches):
        ddp.require_backward_grad_sync = number == 0
        loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
        loss.backward()
    ddp.require_backward_grad_sync = True
    optimizer.step()
