# wrong: the flat tensor has the default dtype, whatever its gradients have
# told: Which dtype has your flat tensor
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
        flat = torch.empty(sum(gradient.numel() for gradient in bucket))
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            part.copy_(gradient.flatten())
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
