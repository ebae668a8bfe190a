# wrong: rank 0 begins with the last parameter, the others with the first
# told: ends its process
# told: Buckets of different sizes met in one all_reduce
# right at: 1
import torch
import torch.distributed as dist


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    if dist.get_rank() > 0:
        gradients.reverse()
    buckets, used, dtype = [], 0, None
    for gradient in gradients:
        if not buckets or used + gradient.nbytes > cap_bytes or gradient.dtype != dtype:
            buckets.append([])
            used = 0
        buckets[-1].append(gradient)
        dtype = gradient.dtype
        used += gradient.nbytes
    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
