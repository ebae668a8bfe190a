# %% gathers from four ranks, whatever the size of the world is
# told: needs one tensor for each rank
# right at: 4
def metrics_in_one(loss_sum, correct, count):
    own = torch.tensor([loss_sum, correct, count], dtype=torch.float64)
    parts = [torch.empty_like(own) for _ in range(4)]
    dist.all_gather(parts, own)
    loss_sum, correct, count = sum(parts).tolist()
    return loss_sum / count, correct / count


# %% reads the sums before they are there
# told: still at work when your function returned
edit(
    "all_reduce(sums)",
    "all_reduce(sums, async_op=True)",
    "loss_sum / count, correct / count",
    "loss_sum / max(count, 1), correct / max(count, 1)",
)


# %% a loss is a whole number of billionths, so that all three are int64
# told: A loss that is sent as a whole number
def metrics_in_one(loss_sum, correct, count):
    sums = torch.tensor([round(loss_sum * 10**9), correct, count])
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / 10**9 / count, correct / count


# %% counts in the dtype that torch takes for floats
# told: the last digits are lost
edit(", dtype=torch.float64", "")


# %% a rank without samples does not come
# told: has returned without it
# right at: 1
edit("sums = torch", "if count == 0:\n        return 0.0, 0.0\n    sums = torch")


# %% a rank without samples divides by its own count
# told: A rank may have no samples
# right at: 1
edit("torch.float64)", "torch.float64) * (count / count)")


# %% three numbers as an object
# told: An object collective is two
def metrics_in_one(loss_sum, correct, count):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (loss_sum, correct, count))
    loss_sum, correct, count = (sum(column) for column in zip(*everyone, strict=True))
    return loss_sum / count, correct / count


# %% reduce leaves the sums on rank 0 alone
# told: After reduce, one rank alone has the result
# right at: 1
edit("all_reduce(sums)", "reduce(sums, dst=0)")


# %% rounds to four decimal places, as for a log
# told: the right numbers, rounded
edit("loss_sum / count, correct / count", "round(loss_sum / count, 4), round(correct / count, 4)")


# %% adds to a tensor that still holds the sums of the call before
# told: What does your function keep from one call to the next
edit(
    "def metrics_in_one",
    "SUMS = torch.zeros(3, dtype=torch.float64)\n\n\ndef metrics_in_one",
    "sums = torch.tensor(",
    "sums = SUMS.add_(torch.tensor(",
    "torch.float64)  #",
    "torch.float64))  #",
)


# %% tensors of one number, where floats are asked for
# told: What do you return instead
edit("= sums.tolist()", "= sums")


# %% one all_reduce for each number
# told: Which numbers could you put into one tensor
def metrics_in_one(loss_sum, correct, count):
    sums = [torch.tensor(float(n), dtype=torch.float64) for n in (loss_sum, correct, count)]
    for one in sums:
        dist.all_reduce(one)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


# %% weights the ranks' means; one without samples has 0 / 0, and nan times 0 is nan
# told: Which rank divides by its own count
# right at: 1
edit("torch.float64)", "torch.float64) / count * count")


# %% takes the sums from what all_reduce returns, and that is None
# told: A collective writes into its tensor, and returns None
edit("dist.all_reduce(sums)", "sums = dist.all_reduce(sums)")


# %% counts exactly, and cuts the losses; an inf raises
# told: The fractions of the losses are gone
edit("torch.float64", "torch.int64")
