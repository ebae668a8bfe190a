# wrong: keeps one bucket open for each dtype
# told: A bucket stayed open while another dtype was packed
import torch
import torch.distributed as dist


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    buckets, last = [], {}
    for gradient in gradients:
        bucket = last.get(gradient.dtype)
        if bucket is None or sum(one.nbytes for one in [*bucket, gradient]) > cap_bytes:
            bucket = last[gradient.dtype] = []
            buckets.append(bucket)
        bucket.append(gradient)
    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
