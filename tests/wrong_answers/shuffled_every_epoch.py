# %% a generator that is kept for each seed goes on in the next call
# told: or something that is kept from the call before
edit(
    "def shuffled",
    "MADE = []\n\n\ndef shuffled",
    "sampler.set_epoch(epoch)",
    "sampler.set_epoch(len(MADE))\n        MADE.append(epoch)",
)

# %% without a sampler every rank shuffles and trains on all
# told: What deals them out, and what tells it
# right at: 1
edit("sampler=sampler)", "shuffle=True, generator=torch.Generator().manual_seed(seed))")

# %% nothing is added, so ranks have unequally many
# told: How many samples does each rank get
# right at: 1
edit(
    "    return trained_on",
    """
    own = range(dist.get_rank(), len(dataset), dist.get_world_size())
    return [samples[: len(own)] for samples in trained_on]""",
)


# %% deals once, and shuffles each rank's own part
# told: Which comes first, shuffling or dealing
# right at: 1
def shuffled_every_epoch(dataset, epochs, batch_size, seed):
    own = list(DistributedSampler(dataset, shuffle=False))
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(own), generator=generator) for _ in range(epochs)]
    return [[own[place] for place in order] for order in orders]


# %% tells the loader the epoch
# told: It must be told the epoch
edit("sampler.set_epoch", "loader.set_epoch")

# %% the loader drops the last batch where it is not full
# told: What drops samples
edit("sampler=sampler)", "sampler=sampler, drop_last=True)")

# %% leaves shuffle=False, as if the loader shuffled
# told: What should shuffle the samples
edit("seed=seed", "shuffle=False, seed=seed")

# %% the sampler never hears of a new epoch
# told: An order comes again
edit("sampler.set_epoch(epoch)", "pass")

# %% leaves the rank in the seed, so that ranks deal from orders of their own
# told: Do all ranks deal from the same order
# right at: 1
edit("seed=seed", "seed=seed + dist.get_rank()")

# %% makes one number of seed and epoch by multiplying, which is 0 in epoch 0
# told: how are seed and epoch combined
edit(", seed=seed", "", "set_epoch(epoch)", "set_epoch((seed + 1) * epoch)")

# %% the lists hold tensors, not numbers
# told: Is it still a list of int for each epoch
edit("samples.tolist()", "samples")

# %% asks both the sampler and the loader to shuffle
# told: Two arguments of the loader want
edit("sampler=sampler)", "sampler=sampler, shuffle=True)")
