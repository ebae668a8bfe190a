# %% counts in the dtype that torch takes for floats
# told: the last digits are lost
edit(", dtype=torch.float64", "")

# %% a rank without samples divides by its own count
# told: A rank may have no samples
# right at: 1
edit("torch.float64)", "torch.float64) * (count / count)")

# %% tensors of one number, where floats are asked for
# told: What do you return instead
edit("= sums.tolist()", "= sums")

# %% one all_reduce for each number
# told: Which numbers could you put into one tensor
edit("dist.all_reduce(sums)", "for one in sums:\n        dist.all_reduce(one)")

# %% weights the ranks' means; one without samples has 0 / 0, and nan times 0 is nan
# told: Which rank divides by its own count
# right at: 1
edit("torch.float64)", "torch.float64) / count * count")

# %% takes the sums from what all_reduce returns, and that is None
# told: A collective writes into its tensor, and returns None
edit("dist.all_reduce(sums)", "sums = dist.all_reduce(sums)")

# %% a barrier after the collective
# told: What does the barrier add? The collective itself
edit("dist.all_reduce(sums)", "dist.all_reduce(sums)\n    dist.barrier()")
