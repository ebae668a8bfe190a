# wrong: gathers each bucket from all ranks, and takes the mean itself
# told: rank 0 called ['all_gather']
import torch
import torch.distributed as dist


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    while gradients:
        bucket = [gradients.pop(0)]
        room = cap_bytes - bucket[0].nbytes
        while gradients and gradients[0].dtype == bucket[0].dtype and gradients[0].nbytes <= room:
            bucket.append(gradients.pop(0))
            room -= bucket[-1].nbytes
        flat = torch.cat([one.flatten() for one in bucket])
        every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
        dist.all_gather(every, flat)
        mean = torch.stack(every).mean(dim=0)
        for one, part in zip(bucket, mean.split([one.numel() for one in bucket]), strict=True):
            one.copy_(part.view_as(one))
