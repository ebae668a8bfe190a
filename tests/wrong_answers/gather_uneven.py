# %% as many collectives as ranks, and one more
# told: How many would it take with 100 ranks
# right at: 1
def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    everyone = [tensor.new_empty(n.item(), *tensor.shape[1:]) for n in lengths]
    everyone[dist.get_rank()] = tensor.contiguous()
    for rank, one in enumerate(everyone):
        dist.broadcast(one, src=rank)
    return everyone


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

# %% gathers to rank 0, the others have nothing
# told: one rank alone has the result
# right at: 1
edit(
    "_ in lengths]\n    dist.all_gather(everyone, padded)",
    "_ in lengths if dist.get_rank() == 0]\n    dist.gather(padded, everyone, dst=0)",
    "everyone, lengths, strict=True",
    "everyone, lengths",
)

# %% pads to 260 rows, whatever comes
# told: To which length do you pad, and which dtype
edit("max(lengths).item()", "260")


# %% gathers the lengths, and then sends each tensor to every other rank
# told: so that one collective moves them all
# right at: 1
def gather_uneven(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, torch.tensor([len(tensor)]))
    everyone = [tensor.new_empty(int(length), *tensor.shape[1:]) for length in lengths]
    everyone[rank].copy_(tensor)
    others = [other for other in range(ranks) if other != rank]
    works = [dist.isend(tensor.contiguous(), other) for other in others]
    works += [dist.irecv(everyone[other], other) for other in others]
    for work in works:
        work.wait()
    return everyone


# %% cuts where the zeros begin, in data that has some
# told: (call 3; the results before it were right)
# told: A number that you pad with may be data
edit("one[:rows] for", "one[one != 0] if one.dim() == 1 else one[:rows] for")
