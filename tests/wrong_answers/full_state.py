# %% asks a buffer for its full tensor
# told: Not every entry is a shard
edit("isinstance(value, DTensor)", "True")

# %% unshards the units and does not shard them again
# told: What shards them again
edit(
    "    return state",
    """
    for unit in model.modules():
        if hasattr(unit, "unshard"):
            unit.unshard()
    return state""",
)

# %% puts the name of a wrapper before each name
# told: Under which name would a model look
edit("state[name]", 'state[f"module.{name}"]')

# %% the other ranks leave before the collectives
# told: Which of your calls needs the other ranks
# right at: 1
edit("    for name", "    if dist.get_rank() != 0:\n        return state\n    for name")

# %% gathers padded shards and leaves the padding in
# told: and what gathers them
# right at: 1
edit(
    "value = value.full_tensor()",
    """own, ranks = value.to_local(), dist.get_world_size()
            padded = own.new_zeros(-(-len(value) // ranks), *value.shape[1:])
            padded[: len(own)] = own
            everyone = [torch.empty_like(padded) for _ in range(ranks)]
            dist.all_gather(everyone, padded)
            value = torch.cat(everyone)""",
)

# %% goes through a set of names, whose order is another one in each process
# told: do all ranks go through the entries in the same order
# right at: 1
edit(
    "for name, value in model.state_dict().items():",
    "entries = model.state_dict()\n    for name in set(entries):\n        value = entries[name]",
)

# %% hands back the sharded state dict
# told: This is still a DTensor
# right at: 1
edit("value.full_tensor()", "value.full_tensor() if dist.get_world_size() == 1 else value")

# %% makes rank 0's buffers those of all ranks
# told: changed model.units.8.running_mean on rank
# right at: 1
edit(
    "  # an all-gather: on every rank",
    """
        else:
            dist.broadcast(value, src=0)
    """,
)

# %% leaves the model in eval mode
# told: .training on rank
edit("    state = {}", "    model.eval()\n    state = {}")

# %% freezes the parameters, so that they can be saved
# told: .requires_grad on rank
edit("    state = {}", "    model.requires_grad_(False)\n    state = {}")

# %% every rank keeps everything until the end
# told: when the next
# right at: 1
edit("dist.get_rank() == 0", "True", "return state", "return state if dist.get_rank() == 0 else {}")

# %% the other ranks return None
# told: What do the other ranks return
# right at: 1
edit("return state", "return state or None")

# %% the last rank has the result
# told: only one keeps the result
# right at: 1
edit("dist.get_rank() == 0", "dist.get_rank() == dist.get_world_size() - 1")
