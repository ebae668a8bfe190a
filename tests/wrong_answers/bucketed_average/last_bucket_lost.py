# wrong: sends a bucket when the next gradient does not fit, and the last one never
# told: Which line sends the last bucket
import torch
import torch.distributed as dist


def send(bucket):
    flat = torch.cat([gradient.flatten() for gradient in bucket])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
        gradient.copy_(part.view_as(gradient))


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    bucket, used = [], 0
    for gradient in gradients:
        full = used + gradient.nbytes > cap_bytes
        if bucket and (full or gradient.dtype != bucket[0].dtype):
            send(bucket)
            bucket, used = [], 0
        bucket.append(gradient)
        used += gradient.nbytes
