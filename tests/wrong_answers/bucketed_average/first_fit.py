# wrong: puts a gradient into the first bucket that has room
# told: joined a bucket after the next one had begun
import torch
import torch.distributed as dist


def bucketed_average(model, cap_bytes):
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    buckets = []
    for gradient in gradients:
        for bucket in buckets:
            bytes_then = sum(one.nbytes for one in [*bucket, gradient])
            if bytes_then <= cap_bytes and bucket[0].dtype == gradient.dtype:
                bucket.append(gradient)
                break
        else:
            buckets.append([gradient])
    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
