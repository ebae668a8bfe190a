# %% returns a tensor
# told: This is a tensor; a float is asked for
edit("total.item()", "total")

# %% divides by get_rank, which is 0 on rank 0
# told: Ranks are counted from 0
edit("get_world_size()", "get_rank()")

# %% hands a number to the collective
# told: A collective takes a tensor. Which
edit("all_reduce(total)", "all_reduce(value)")

# %% goes on with what all_reduce returns
# told: What holds the sum?
edit("    dist.all_reduce", "    total = dist.all_reduce")

# %% a rank with 0 stays away from the collective
# told: the first call was right
# right at: 1
edit("dist.all_reduce(total)", "if value != 0:\n        dist.all_reduce(total)")

# %% reduce gives the sum to one rank
# told: After reduce, one rank alone has the result
# right at: 1
edit("all_reduce(total)", "reduce(total, dst=0)")


# %% each rank begins with its own number, and rounds another way
# told: The last digits of a sum depend on it
# right at: 1, 2
def mean_over_ranks(value):
    size = dist.get_world_size()
    parts = [torch.zeros(1, dtype=torch.float64) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([value], dtype=torch.float64))
    total = 0.0
    for step in range(size):
        total += parts[(dist.get_rank() + step) % size].item()
    return total / size


# %% the result depends on more than this rank's number
# told: What does your function keep from one call to the next?
# right at: 1
edit("def mean", "from functools import cache\n\n\n@cache\ndef mean")

# %% returns what all_reduce returns
# told: A collective fills its tensors and returns None
body("return dist.all_reduce(torch.tensor(value))")
