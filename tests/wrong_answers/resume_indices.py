# %% a seed that depends on the stop gives another order, of which other samples are done
# told: Is the order the one before the stop
edit("seed + epoch", "seed + epoch + done")


# %% an empty rest is taken for no stop at all
# told: All samples are done
edit("order[done + rank :: world_size]", "(order[done:] or order)[rank::world_size]")


# %% adds done to the samples, not to their places in the order
# told: Where do the other numbers come from
edit(
    "order[done + rank :: world_size]",
    "[order[place] + done for place in range(rank, n - done, world_size)]",
)


# %% draws from torch's own generator, without a seed
# told: The same call gives other samples the next time
edit("n, generator=generator", "n")


# %% keeps the generator of an epoch, which gives another order the second time
# told: Made first, this call is right
# told: left: [3, 13, 20
import functools

import torch


@functools.cache
def seeded(number):
    return torch.Generator().manual_seed(number)


def resume_indices(n, epoch, seed, done, rank, world_size):
    order = torch.randperm(n, generator=seeded(seed + epoch))
    return order[done + rank :: world_size].tolist()


# %% keeps the order of an epoch, whatever the number of samples
# told: Made first, this call is right
# told: the results before it were right
ORDERS = {}


def resume_indices(n, epoch, seed, done, rank, world_size):
    if (seed, epoch) not in ORDERS:
        generator = torch.Generator().manual_seed(seed + epoch)
        ORDERS[seed, epoch] = torch.randperm(n, generator=generator).tolist()
    return ORDERS[seed, epoch][done + rank :: world_size]


# %% seeds the generator that everybody else in the process uses, too
# told: it changed the seed of torch
edit(
    "generator = torch.Generator().manual_seed(seed + epoch)",
    "torch.manual_seed(seed + epoch)",
    "n, generator=generator",
    "n",
)


# %% makes what is left longer, so that all ranks get equally many, as the sampler does
# told: Right so far, but more samples follow
edit(
    "order[done + rank :: world_size]",
    "(order[done:] + order[done:][: -(n - done) % world_size])[rank::world_size]",
)


# %% a dtype that is too small for the samples of a large data set
# told: Which numbers does the dtype hold
edit("generator=generator", "generator=generator, dtype=torch.int16")


# %% sorts what a rank has got
# told: In which order are they dealt
edit("order[done + rank :: world_size]", "sorted(order[done + rank :: world_size])")


# %% a list of tensors with one number each
# told: a list with a tensor in it
edit(
    ".tolist()",
    "",
    "return order[done + rank :: world_size]",
    "return list(order[done + rank :: world_size])",
)


# %% deals to the last rank first
# told: Each list is right, but on another rank
edit("done + rank ::", "done + world_size - 1 - rank ::")


# %% uses what is left from its end
# told: and does the task make it so
edit("order[done + rank :: world_size]", "order[done:][::-1][rank::world_size]")


# %% deals what is left in blocks, of which the last one is shorter
# told: Each rank has a block of neighbours
def resume_indices(n, epoch, seed, done, rank, world_size):
    generator = torch.Generator().manual_seed(seed + epoch)
    left = torch.randperm(n, generator=generator).tolist()[done:]
    each = -(-len(left) // world_size)
    return left[rank * each : (rank + 1) * each]
