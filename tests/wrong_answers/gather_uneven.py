# %% as many collectives as ranks, and one more
# told: How many would it take with 100 ranks
# right at: 1
edit(
    "    dist.all_gather(everyone, padded)",
    """
    everyone[dist.get_rank()] = padded
    for rank, one in enumerate(everyone):
        dist.broadcast(one, src=rank)""",
)

# %% a later call writes into the tensors that an earlier one has returned
# told: Do the results of two calls share memory
edit(
    "def gather",
    "BUFFERS = {}\n\n\ndef gather",
    "everyone = [torch.empty_like(padded) for _ in lengths]",
    """key = padded.shape, padded.dtype
    everyone = BUFFERS.setdefault(key, [torch.empty_like(padded) for _ in lengths])""",
)

# %% the shortest tensor comes first
# told: the right tensors in another order
# right at: 1
edit(
    "[one[:rows] for one, rows in zip(everyone, lengths, strict=True)]",
    "sorted([one[:rows] for one, rows in zip(everyone, lengths, strict=True)], key=len)",
)

# %% gathers tensors of unlike length as they are
# told: One collective got tensors of different sizes
# right at: 1
body("""
    everyone = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, tensor)
    return everyone
""")

# %% padding for tensors of one dimension
# told: which other dimensions does the result have
edit(
    "tensor.new_zeros(max(lengths).item(), *tensor.shape[1:])",
    "tensor.new_zeros(max(lengths).item())",
)

# %% pads to 260 rows, whatever comes
# told: To which length do you pad, and which dtype
edit("max(lengths).item()", "260")

# %% gathers the lengths, and then sends each tensor to every other rank
# told: so that one collective moves them all
# right at: 1
edit(
    "    dist.all_gather(everyone, padded)",
    """
    others = [rank for rank in range(len(everyone)) if rank != dist.get_rank()]
    everyone[dist.get_rank()] = padded
    works = [dist.isend(padded, rank) for rank in others]
    for work in [*works, *(dist.irecv(everyone[rank], rank) for rank in others)]:
        work.wait()""",
)

# %% cuts where the zeros begin, in data that has some
# told: (call 3; the results before it were right)
# told: A number that you pad with may be data
edit("one[:rows] for", "one[one != 0] if one.dim() == 1 else one[:rows] for")
