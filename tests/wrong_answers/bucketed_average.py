# %% rank 0 begins with the last parameter, the others with the first
# told: ends its process
# told: Buckets of different sizes met in one all_reduce
# right at: 1
edit("    buckets,", "    gradients = gradients[:: -1 if dist.get_rank() else 1]\n    buckets,")

# %% the bucket before the first one has no gradient
# told: what if the very first one is above the
edit("[], cap_bytes, None", "[[]], cap_bytes, gradients[0].dtype")

# %% adds up on rank 0, and sends the mean back
# told: Which collective gives every rank the sum
# told: called broadcast, reduce
edit("dist.all_reduce(flat)", "dist.reduce(flat, 0)\n        dist.broadcast(flat, 0)")

# %% a parameter without gradient is not passed over
# told: A parameter without gradient: what is its .grad
edit(" if p.grad is not None]", "]")
