# wrong: sends the bucket before the first one, too
# told: Was a bucket sent that holds no gradient
import torch
import torch.distributed as dist


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    buckets, used, dtype = [[]], 0, gradients[0].dtype
    for gradient in gradients:
        if used + gradient.nbytes > cap_bytes or gradient.dtype != dtype:
            buckets.append([])
            used = 0
        buckets[-1].append(gradient)
        dtype = gradient.dtype
        used += gradient.nbytes
    for bucket in buckets:
        flat = torch.cat([gradients[0][:0].flatten(), *(gradient.flatten() for gradient in bucket)])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
