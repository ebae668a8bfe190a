# wrong: avoids no_sync by going past ddp, for all micro-batches but the last
# told: Only the last micro-batch went through ddp
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        model = ddp if number == len(micro_batches) else ddp.module
        (F.cross_entropy(model(images), labels) / len(micro_batches)).backward()
    optimizer.step()
