# %% takes tensors of the default dtype
# told: Which dtype do the tensors that the collective fills have
edit("torch.empty_like(shard)", "torch.empty(len(shard))")

# %% rounds the length of the shards down
# told: Which shape must a tensor have to take the shard
# right at: 1
edit("torch.empty_like(shard)", "shard.new_empty(shape.numel() // dist.get_world_size())")

# %% gives all_gather an empty list to fill
# told: How many tensors does the list to be filled hold
edit("[torch.empty_like(shard) for _ in range(dist.get_world_size())]", "[]")

# %% joins the shards that have something in them, of which there may be none
# told: A tensor without elements has shards too
edit("torch.cat(shards)", "torch.cat([one for one in shards if len(one)])")

# %% gathers the lengths first, which are all equal
# told: The shards are equally long, and every rank knows the shape
edit(
    "    shards =",
    "    lengths = [torch.zeros(()) for _ in range(dist.get_world_size())]\n"
    "    dist.all_gather(lengths, torch.ones(()))\n    shards =",
)

# %% reshapes the row with its padding
# told: Does what you reshape have as many elements
# right at: 1
edit("[: shape.numel()]", "")

# %% adds up rows that are zero but for the own shard
# told: without adding up
edit("dist.all_gather(shards, shard)", "dist.all_reduce(shard.clone())")

# %% clears the shard, once it is gathered, to save memory
# told: Which line changes it
edit("return", "shard.zero_()\n    return")
