# %% rank 0 sends the sum to all ranks of all nodes
# told: in all_reduce (24 bytes sent, 24 received) and broadcast (0 bytes sent, 24 received)
# right at: 1
edit("group_src=0, group=inside", "src=0")

# %% every leader gathers the sums of all nodes, and adds them up
# told: if there were a hundred nodes
# right at: 1
edit(
    "dist.all_reduce(tensor, group=between)",
    "sums = [torch.empty_like(tensor) for _ in range(dist.get_world_size(between))]\n"
    "        dist.all_gather(sums, tensor, group=between)\n"
    "        tensor.copy_(sum(sums))",
)

# %% src=0 is rank 0 of the world, which is not in each node
# told: Which arguments take the rank inside the group
# right at: 1
edit("group_src=0", "src=0")

# %% adds up in float32, whatever the dtype is
# told: Print the tensor on every rank after each step
edit(
    "dist.reduce",
    "whole, tensor = tensor, tensor.float()\n    dist.reduce",
    "group_src=0, group=inside)",
    "group_src=0, group=inside)\n    whole.copy_(tensor)",
)

# %% ranks that are no leaders call on group None, which is the world
# told: group=None means the world
# right at: 1
edit("if between is not None:  # this rank leads its node\n        ", "")

# %% the leaders keep the sum for themselves
# told: The leaders have the sum over all ranks
# right at: 1,2
edit(
    "dist.reduce(tensor, group_dst=0",
    "dist.all_reduce(tensor",
    "dist.broadcast(tensor, group_src=0, group=inside)",
    "",
)

# %% a plain all_reduce: the right sum, and all ranks between the nodes
# told: rank 1 took part in all_reduce
# told: What can another rank tell the other nodes
# right at: 1,2
body("dist.all_reduce(tensor)")

# %% one leader adds up and sends to the others: two trips
# told: took part in reduce (
# told: Each operation is a trip between the nodes
# right at: 1
edit(
    "dist.all_reduce(tensor, group=between)",
    "dist.reduce(tensor, group_dst=0, group=between)\n"
    "        dist.broadcast(tensor, group_src=0, group=between)",
)
