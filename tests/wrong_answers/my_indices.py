# %% each rank draws what chance gives it
# told: The same call gives other samples the next time
edit("n, generator=generator", "n")

# %% repeats the order as often as it takes, and divides by n = 0 to know how often
# told: n can be 0
edit(
    "[order[place % n] for place in range(each * world_size)]",
    "(order * (each * world_size // n + 1))[: each * world_size]",
)

# %% keeps the order of so many samples, whatever the epoch and the seed
# told: Made first, this call is right
edit(
    "def my_indices",
    "KEPT = {}\n\n\ndef my_indices",
    "torch.randperm(n, generator=generator).tolist()",
    "KEPT.setdefault(n, torch.randperm(n, generator=generator).tolist())",
)

# %% deals first, and shuffles what a rank has got
# told: Which of the rules comes first
edit(
    "order = torch.randperm(n, generator=generator).tolist()",
    "pass",
    "return dealt[rank::world_size]",
    """own = dealt[rank::world_size]
    places = torch.randperm(each, generator=generator).tolist() if shuffle else range(each)
    return [own[place] for place in places]""",
)

# %% fills up with -1, which is the index of no sample
# told: Where do the other numbers come from
edit(
    "[order[place % n] for place in range(each * world_size)]",
    "(order + [-1] * world_size)[: each * world_size]",
)

# %% shuffles with the same seed, but with Python's generator
# told: and does the task make it so
edit(
    "torch.randperm(n, generator=generator).tolist()",
    "__import__('random').Random(seed + epoch).sample(order, n)",
)

# %% adds what n is above a multiple, not what is missing to the next one
# told: How long must the order be before it is dealt
edit(
    "[order[place % n] for place in range(each * world_size)]",
    "(order if drop_last else order + order[: n % world_size])[: each * world_size]",
)

# %% sorts what a rank has got
# told: In which order are they dealt
edit("dealt[rank::world_size]", "sorted(dealt[rank::world_size])")

# %% a list of tensors with one number each
# told: a list with a tensor in it
edit(".tolist()", "")

# %% with drop_last rounds to the nearest number, which can be the one above
# told: Does every rank get as many samples as it must
edit("n // world_size if", "round(n / world_size) if")

# %% lets DistributedSampler do it
# told: a DistributedSampler is asked
body("""
    sampler = torch.utils.data.DistributedSampler(
        range(n), world_size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    return list(sampler)
""")

# %% deals to the last rank first
# told: Each list is right, but on another rank
edit("dealt[rank::", "dealt[world_size - 1 - rank ::")

# %% each rank gets a block of the order instead of every world_size-th sample
# told: Each rank has a block of neighbours
edit("dealt[rank::world_size]", "dealt[rank * each : (rank + 1) * each]")

# %% seeds the generator of the whole process
# told: Which generator does the task's first rule seed
edit(
    "generator = torch.Generator().manual_seed(seed + epoch)",
    "torch.manual_seed(seed + epoch)",
    "n, generator=generator",
    "n",
)
