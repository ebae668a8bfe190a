# %% a broadcast of rank 0's weights
# told: Which weights has each rank before the meeting
# right at: 1
edit("dist.all_reduce(gone)", "dist.broadcast(gone, src=0)", " / dist.get_world_size()", "")

# %% a barrier at each meeting
# told: No other one is needed
edit("gone = one", "dist.barrier()\n                gone = one")

# %% meets twice after the last step
# told: How many meetings are there
# right at: 1
edit(
    "        if number % every == 0 or number == len(batches):",
    "        for _ in range((number % every == 0) + (number == len(batches))):",
)

# %% in place outside no_grad
# told: Weights are changed outside of autograd
edit("one.data.copy_(before)", "one.copy_(before)")
