# wrong: keeps DDP from sending at all, and averages by hand
# told: no backward on rank 0 has let DDP send
import torch.distributed as dist
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    with ddp.no_sync():
        for images, labels in micro_batches:
            (F.cross_entropy(ddp(images), labels) / len(micro_batches)).backward()
    for parameter in ddp.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
