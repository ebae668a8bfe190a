# %% returns nothing
# told: Does every way through your function end with a return
edit("    return dist.all_reduce(sent, async_op=True)", "    dist.all_reduce(sent, async_op=True)")

# %% returns the tensor
# told: What does it return in its place
edit(
    "    return dist.all_reduce(sent, async_op=True).get_future().then(spread)",
    "    return dist.all_reduce(sent, async_op=True).get_future().then(spread).wait()",
)

# %% returns all_reduce's own future
# told: all_reduce's own future is a list with the tensor
edit(".get_future().then(spread)", ".get_future()")

# %% the quarter alone
# told: How long is the vector that your callback returns
edit("        return mean", "        return mean[part]")

# %% a gather in the place of the all_reduce
# told: Which collective adds them up
edit(
    "sent = kept[part] / dist.get_world_size()",
    "sent = kept[part].clone()\n"
    "    every = [torch.empty_like(sent) for _ in range(dist.get_world_size())]",
    "future.value()[0]",
    "sum(every) / len(every)",
    "dist.all_reduce(",
    "dist.all_gather(every, ",
)

# %% zeros travel in a second message
# told: Which numbers does your all_reduce take besides
edit(
    "    def spread",
    "    dist.all_reduce(torch.zeros(3), async_op=True).wait()\n\n    def spread",
)

# %% a block in the place of every fourth
# told: Write down one number of one bucket over five steps
edit(
    "slice(step % 4, None, 4)",
    "slice(step % 4 * len(gradient) // 4, (step % 4 + 1) * len(gradient) // 4)",
)

# %% the state is kept in the module
# told: Made first, this call is right
edit(
    "def compress_gradients",
    "STATE = {}\n\n\ndef compress_gradients",
    "state.get(bucket.index()",
    "STATE.get(bucket.index()",
    "    state[bucket.index()]",
    "    STATE[bucket.index()]",
)

# %% each rank begins with another quarter
# told: The ranks make the same call with different shapes
# right at: 1
edit("step % 4", "(step + dist.get_rank()) % 4")
