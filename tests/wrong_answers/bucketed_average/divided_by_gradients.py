# wrong: divides by the number of gradients in the bucket
# told: a multiple of the mean
import torch
import torch.distributed as dist


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
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
        flat /= len(bucket)
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
