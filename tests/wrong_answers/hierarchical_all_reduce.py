# %% the leaders do not wait for each other
# told: still at work when your function returned
edit("group=between)", "group=between, async_op=True)")


# %% rank 0 sends the sum to all ranks of all nodes
# told: took part in all_reduce and broadcast: 24 bytes sent, 48 received
# right at: 1
edit("group_src=0, group=inside", "src=0")


# %% all ranks meet in a barrier
# told: took part in all_reduce and barrier
# right at: 1
edit("dist.broadcast", "dist.barrier()\n    dist.broadcast")


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
# told: In which dtype do your operations send
def hierarchical_all_reduce(tensor, inside, between):
    total = tensor.to(torch.float32)
    dist.reduce(total, group_dst=0, group=inside)
    if between is not None:
        dist.all_reduce(total, group=between)
    dist.broadcast(total, group_src=0, group=inside)
    tensor.copy_(total)


# %% ranks that are no leaders call on group None, which is the world
# told: group=None means the world
# right at: 1
edit("if between is not None:  # this rank leads its node\n        ", "")


# %% the leaders keep the sum for themselves
# told: The leaders have the sum over all ranks
# right at: 1,2
def hierarchical_all_reduce(tensor, inside, between):
    dist.all_reduce(tensor, group=inside)
    if between is not None:
        dist.all_reduce(tensor, group=between)


# %% a plain all_reduce: the right sum, and all ranks between the nodes
# told: rank 1 took part in all_reduce
# told: What can another rank tell the other nodes
# right at: 1,2
body("dist.all_reduce(tensor)")


# %% the leaders pass their sums round a ring, one operation for each other node
# told: took part in send and recv
# told: Each operation is a trip between the nodes
# right at: 1
def hierarchical_all_reduce(tensor, inside, between):
    dist.reduce(tensor, group_dst=0, group=inside)
    if between is not None and between.size() > 1:
        leaders, own = between.size(), dist.get_rank(between)
        passed_on = tensor.clone(memory_format=torch.contiguous_format)
        for _ in range(leaders - 1):
            came = torch.empty_like(passed_on)
            work = dist.isend(passed_on, group=between, group_dst=(own + 1) % leaders)
            dist.recv(came, group=between, group_src=(own - 1) % leaders)
            work.wait()
            tensor += came
            passed_on = came
    dist.broadcast(tensor, group_src=0, group=inside)


# %% one leader adds up and sends to the others: two trips
# told: took part in reduce and broadcast
# told: Each operation is a trip between the nodes
# right at: 1
edit(
    "dist.all_reduce(tensor, group=between)",
    "dist.reduce(tensor, group_dst=0, group=between)\n"
    "        dist.broadcast(tensor, group_src=0, group=between)",
)


# %% starts all three, and waits for them at the end
# told: while an earlier one is still running
# right at: 1
def hierarchical_all_reduce(tensor, inside, between):
    works = [dist.reduce(tensor, group_dst=0, group=inside, async_op=True)]
    if between is not None:
        works.append(dist.all_reduce(tensor, group=between, async_op=True))
    works.append(dist.broadcast(tensor, group_src=0, group=inside, async_op=True))
    for work in works:
        work.wait()
