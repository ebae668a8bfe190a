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
edit("in buckets:", "in buckets[:-1]:")


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
edit("    buckets,", "    model.p00.data += 1\n    buckets,")


# %% views a gradient that is not contiguous
# told: Which other method makes it flat
edit("gradient.flatten()", "gradient.view(-1)")


# %% a parameter without gradient is not passed over
# told: A parameter without gradient: what is its .grad
edit(" if p.grad is not None]", "]")


# %% plans the buckets of a model once, whatever the cap
# told: What does your function keep from one call to the next
edit(
    "def bucketed_average",
    "PLAN = []\n\n\ndef bucketed_average",
    "    for bucket in buckets:",
    "    PLAN.extend([] if PLAN else map(len, buckets))\n"
    "    left = iter(gradients)\n"
    "    for bucket in [[next(left) for _ in range(length)] for length in PLAN]:",
)
