# %% all keys and values are gathered
# told: sends and receives, but no collective
body("""
    size = dist.get_world_size()
    keys, values = ([torch.empty_like(one) for _ in range(size)] for one in (key, value))
    dist.all_gather(keys, key)
    dist.all_gather(values, value)
    scores = query @ torch.cat(keys, 1).mT / query.shape[-1] ** 0.5
    first = dist.get_rank() * query.shape[1]
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(first + 1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ torch.cat(values, 1)
""")

# %% the ring brings all blocks first, and then comes one softmax
# told: Can softmax be put together block by block
# right at: 1
body("""
    rank, size = dist.get_rank(), dist.get_world_size()
    blocks = {rank: torch.stack([key, value])}
    for number in range(1, size):
        sending = dist.isend(blocks[(rank - number + 1) % size], (rank + 1) % size)
        blocks[(rank - number) % size] = torch.empty_like(blocks[rank])
        dist.recv(blocks[(rank - number) % size], (rank - 1) % size)
        sending.wait()
    scores = torch.cat([query @ blocks[r][0].mT for r in range(rank + 1)], -1)
    scores = scores / query.shape[-1] ** 0.5
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(rank * query.shape[1] + 1)
    weights = scores.masked_fill(later, -torch.inf).softmax(-1)
    return weights @ torch.cat([blocks[r][1] for r in range(rank + 1)], 1)
""")

# %% sums of exponentials without a maximum
# told: Of which numbers do you take the exponential
body("""
    rank, size = dist.get_rank(), dist.get_world_size()
    block, above, below = torch.stack([key, value]), 0, 0
    later = torch.ones(query.shape[1], query.shape[1], dtype=torch.bool).triu(1)
    for number in range(size):
        if number:
            arriving = torch.empty_like(block)
            sending = dist.isend(block, (rank + 1) % size)
            dist.recv(arriving, (rank - 1) % size)
            sending.wait()
            block = arriving
        if number <= rank:
            powers = (query @ block[0].mT / query.shape[-1] ** 0.5).exp()
            powers = powers.masked_fill(later, 0) if number == 0 else powers
            above, below = above + powers @ block[1], below + powers.sum(-1, keepdim=True)
    return above / below
""")

# %% blocks of later ranks are masked as a whole, and merged all the same
# told: a row that may see no key
# right at: 1
edit(
    "            continue  # all of these keys come later\n",
    "            block = block.clone()\n",
    "        if owner == rank:\n            scores = scores.masked_fill(later, -torch.inf)",
    "        if owner >= rank:\n"
    "            all_or_some = later.fill_(True) if owner > rank else later\n"
    "            scores = scores.masked_fill(all_or_some, -torch.inf)",
)

# %% a rank that may see nothing does not pass on
# told: has returned without it
# right at: 1, 2
edit("if number > 0:\n", "if 0 < number <= rank or number == 1 < ranks:\n")

# %% everybody sends first
# told: waits in send
# right at: 1
edit(
    "sending = dist.isend(block, (rank + 1) % ranks)  # with send, all ranks would wait",
    "dist.send(block, (rank + 1) % ranks)",
    "            sending.wait()\n",
    "",
)

# %% the queries travel, too
# told: What else is in it
# right at: 1
edit("torch.stack([key, value])", "torch.stack([key, value, query])")

# %% a last pass brings every block home
# told: how many passes bring every block to every rank
# right at: 1
edit(
    "    return out\n",
    "    if ranks > 1:\n"
    "        sending = dist.isend(block, (rank + 1) % ranks)\n"
    "        dist.recv(torch.empty_like(block), (rank - 1) % ranks)\n"
    "        sending.wait()\n"
    "    return out\n",
)

# %% a barrier in each round
# told: What does the barrier add
edit("        owner =", "        dist.barrier()\n        owner =")

# %% the products one by one
# told: has a fourth dimension
edit("query @ block[0].mT", "(query[:, :, None] * block[0][:, None]).sum(-1)")

# %% the other way round the ring
# told: Is it a ring
# right at: 1, 2
edit(
    "(rank + 1) % ranks)  #",
    "(rank - 1) % ranks)  #",
    "(rank - 1) % ranks)\n",
    "(rank + 1) % ranks)\n",
    "(rank - number) % ranks",
    "(rank + number) % ranks",
)

# %% messages in float32
# told: a message in float32
# right at: 1
edit(
    "isend(block,",
    "isend(block.float(),",
    "torch.empty_like(block)",
    "torch.empty_like(block, dtype=torch.float32)",
    "block = arriving",
    "block = arriving.to(query.dtype)",
)

# %% tokens before heads in what is returned
# told: not of the query's shape
edit("    return out\n", "    return out.transpose(0, 1)\n")
