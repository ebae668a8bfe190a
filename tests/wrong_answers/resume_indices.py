# %% a seed that depends on the stop gives another order, of which other samples are done
# told: Is the order the one before the stop
edit("seed + epoch", "seed + epoch + done")

# %% an empty rest is taken for no stop at all
# told: All samples are done
edit("order[done + rank :: world_size]", "(order[done:] or order)[rank::world_size]")

# %% makes what is left longer, so that all ranks get equally many, as the sampler does
# told: Right so far, but more samples follow
edit(
    "order[done + rank :: world_size]",
    "(order[done:] + order[done:][: -(n - done) % world_size])[rank::world_size]",
)

# %% a dtype that is too small for the samples of a large data set
# told: Which numbers does the dtype hold
edit("generator=generator", "generator=generator, dtype=torch.int16")
