# %% only rank 0 gathers
# told: hangs
# told: Do all ranks reach the same collectives
# right at: 1
edit(
    "    dist.all_gather_object(random, torch.get_rng_state())",
    "    if dist.get_rank() == 0:\n        dist.all_gather_object(random, torch.get_rng_state())",
)

# %% the whole optimizer goes into the checkpoint
# told: rank 0 returned what torch.load refuses
# told: What is in it besides, or instead
edit('"optimizer": job.optimizer.state_dict()', '"optimizer": job.optimizer')

# %% rank 0 returns nothing
# told: rank 0 returned None
# told: What is in it besides, or instead
edit("    return {", "    if dist.get_rank() == 0:\n        return None\n    return {")

# %% the optimizer of the rank's momentum is forgotten on all ranks but 0
# told: other weights on rank
# told: What else does a step depend on, and on which ranks
# right at: 1
edit(
    'job.optimizer.load_state_dict(saved["optimizer"])',
    'job.optimizer.load_state_dict(saved["optimizer"]) if dist.get_rank() == 0 else None',
)

# %% draws a number before it goes on
# told: what draws some of them between then and the next step
edit("    end = done", "    if saved:\n        torch.rand(1)\n    end = done")

# %% one step too many
# told: Write down the epoch and the batch in it
edit("end = done + steps", "end = done + steps + (done > 0)")

# %% keeps it under another name
# told: KeyError
# told: Is there a value under this key
edit('saved["optimizer"]', 'saved["optimiser"]')

# %% a row of a tensor, at which torch 2.13 crashes
# told: SIGSEGV
# told: A clone of the row has memory of its own
# right at: 1
edit(
    "    random = [None] * dist.get_world_size()\n",
    "",
    "dist.all_gather_object(random, torch.get_rng_state())",
    """random = torch.zeros(dist.get_world_size(), torch.get_rng_state().numel(), dtype=torch.uint8)
    random[dist.get_rank()] = torch.get_rng_state()
    dist.all_reduce(random)""",
)
