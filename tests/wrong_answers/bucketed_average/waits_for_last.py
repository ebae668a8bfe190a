# wrong: starts all buckets and waits for the last
# told: 8 of 9 operations
# told: still at work when your function returned
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
    flats = []
    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        flats.append(flat)
        work = dist.all_reduce(flat, async_op=True)
    work.wait()
    for bucket, flat in zip(buckets, flats, strict=True):
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
