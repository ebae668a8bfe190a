# %% reads the bucket while it is under way
# told: 9 of 9 operations
# told: still at work when your function returned
edit("dist.all_reduce(flat)", "dist.all_reduce(flat, async_op=True)")


# %% divides by a number that is too large
# told: a multiple of the mean
edit("dist.get_world_size()", "(dist.get_world_size() + 1)")


# %% rank 0 begins with the last parameter, the others with the first
# told: ends its process
# told: Buckets of different sizes met in one all_reduce
# right at: 1
edit("    buckets,", "    gradients = gradients[:: -1 if dist.get_rank() else 1]\n    buckets,")


# %% sends the bucket before the first one, too
# told: Was a bucket sent that holds no gradient
edit(
    "[], cap_bytes, None",
    "[[]], cap_bytes, gradients[0].dtype",
    "torch.cat([",
    "torch.cat([gradients[0].flatten()[:0]] + [",
)


# %% the bucket before the first one has no gradient
# told: what if the very first one is above the
edit("[], cap_bytes, None", "[[]], cap_bytes, gradients[0].dtype")


# %% pop takes the last bucket first
# told: the order is not
edit("    for bucket in buckets:", "    while buckets:\n        bucket = buckets.pop()")


# %% sends a bucket when the next gradient does not fit, and the last one never
# told: Which line sends the last bucket
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


# %% rank 0 alone comes to the collectives
# told: hangs at
# told: has returned without it
# right at: 1
edit("in buckets:", "in buckets if dist.get_rank() == 0 else []:")


# %% adds up on rank 0, and sends the mean back
# told: Which collective gives every rank the sum
# told: ['broadcast', 'reduce']
edit("dist.all_reduce(flat)", "dist.reduce(flat, 0)\n        dist.broadcast(flat, 0)")


# %% changes the weights
# told: do you write into, the parameters or their
def bucketed_average(model, cap_bytes):
    for parameter in reversed(list(model.parameters())):
        if parameter.grad is not None:
            parameter.data += parameter.grad
    buckets, room, dtype = [], 0, None
    for gradient in [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]:
        if gradient.dtype != dtype or gradient.nbytes > room:
            buckets.append([])
            room, dtype = cap_bytes, gradient.dtype
        buckets[-1].append(gradient)
        room -= gradient.nbytes
    for bucket in buckets:
        dist.all_reduce(torch.cat([gradient.flatten() for gradient in bucket]))


# %% views a gradient that is not contiguous
# told: Which other method makes it flat
edit("gradient.flatten()", "gradient.view(-1)")


# %% a parameter without gradient is not passed over
# told: A parameter without gradient: what is its .grad
edit(" if p.grad is not None]", "]")


# %% plans the buckets of a model once, whatever the cap
# told: What does your function keep from one call to the next
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
