# wrong: divides by the ranks as well, which DDP has done
# told: is divided by the number of ranks, too
# right at: 1
import torch.distributed as dist
import torch.nn.functional as F


def accumulate(ddp, micro_batches, optimizer):
    optimizer.zero_grad()
    parts = len(micro_batches) * dist.get_world_size()
    with ddp.no_sync():
        for images, labels in micro_batches[:-1]:
            (F.cross_entropy(ddp(images), labels) / parts).backward()
    images, labels = micro_batches[-1]
    (F.cross_entropy(ddp(images), labels) / parts).backward()
    optimizer.step()
