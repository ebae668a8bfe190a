# %% N rounds in the second half, one of which brings nothing new
# told: Which pieces does the next rank still need
# right at: 1
edit("range(2 * (ranks - 1))", "range((2 * ranks - 1) * (ranks > 1))")

# %% takes the old numbers away from themselves, which makes nan of inf
# told: inf is in place 2
# told: Whose are in this sum, and how often
# right at: 1
edit(
    "staying + arriving if number < ranks - 1 else arriving",
    "staying - staying * (number >= ranks - 1) + arriving",
)

# %% all pieces go to rank 0, which adds them up and sends them back
# told: Is it a ring
# right at: 1, 2
body("""
    box = tensor.contiguous()
    others = range(1, dist.get_world_size())
    for piece in box.tensor_split(dist.get_world_size()):
        for other in others if dist.get_rank() == 0 else ():
            arriving = torch.empty_like(piece)
            dist.recv(arriving, other)
            piece += arriving
        for other in others if dist.get_rank() == 0 else ():
            dist.send(piece, other)
        if dist.get_rank() > 0:
            dist.send(piece, 0)
            dist.recv(piece, 0)
    tensor.copy_(box)
""")

# %% adds up in float32, whatever the dtype
# told: a message in float32
# right at: 1
edit(
    "% ranks].contiguous()",
    "% ranks].float().contiguous()",
    "torch.empty_like(staying,",
    "torch.empty_like(staying, dtype=torch.float32,",
)

# %% only small tensors are sent with isend; with large ones all ranks send first and wait
# told: hangs
# told: (dist.isend if small else dist.send)(leaving
# right at: 1
edit(
    "sending = dist.isend(leaving",
    "small = len(tensor) < 1000  # as if the network kept so many\n"
    "        sending = (dist.isend if small else dist.send)(leaving",
    "sending.wait()",
    "sending and sending.wait()",
)

# %% nobody waits for the sends
# told: still at work when your function returned
# right at: 1
edit("\n        sending.wait()", "")

# %% the last piece takes what is left over, so that it is too long
# told: How long is the longest of N pieces
# right at: 1, 2
edit(
    "tensor_split(ranks)",
    "tensor_split([len(tensor) // ranks * n for n in range(1, ranks)])",
)

# %% chunk makes fewer pieces than there are ranks where the tensor is short
# told: raises IndexError
# told: How many pieces are there
# right at: 1
edit("tensor_split(ranks)", "chunk(ranks)")

# %% leaves the work to a collective
# told: called all_reduce
body("dist.all_reduce(tensor)")


# %% passes whole tensors round the ring
# told: This message is the whole tensor
# right at: 1
def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    passing = tensor.clone()
    for _ in range(ranks - 1):
        arriving = torch.empty_like(passing)
        sending = dist.isend(passing, after)
        dist.recv(arriving, before)
        sending.wait()
        tensor += arriving
        passing = arriving
