# wrong: plans the buckets of a model once, whatever the cap
# told: What does your function keep from one call to the next
import torch
import torch.distributed as dist

PLAN = {}


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    used, dtype = 0, None
    lengths = PLAN.setdefault(id(model), [])
    begun = bool(lengths)
    for gradient in gradients if not begun else []:
        if not lengths or used + gradient.nbytes > cap_bytes or gradient.dtype != dtype:
            lengths.append(0)
            used = 0
        lengths[-1] += 1
        dtype = gradient.dtype
        used += gradient.nbytes
    for length in lengths:
        bucket, gradients = gradients[:length], gradients[length:]
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
