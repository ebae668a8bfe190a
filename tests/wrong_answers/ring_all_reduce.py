# %% N rounds in the second half, one of which brings nothing new
# told: Which pieces does the next rank still need
# right at: 1
edit("range(2 * (ranks - 1))", "range((2 * ranks - 1) * (ranks > 1))")


# %% leaves the second half to a collective, which takes pieces of one size
# told: and the task allows no collective
# right at: 1


def ring_all_reduce(tensor):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if ranks == 1:
        return
    pieces = list(tensor.tensor_split(ranks))
    for step in range(ranks - 1):
        leaving = pieces[(rank - step) % ranks].contiguous()
        staying = pieces[(rank - step - 1) % ranks]
        sending = dist.isend(leaving, (rank + 1) % ranks)
        arriving = torch.empty_like(staying).contiguous()
        dist.recv(arriving, (rank - 1) % ranks)
        staying.add_(arriving)
        sending.wait()
    everyone = [torch.empty_like(piece) for piece in pieces]
    dist.all_gather(everyone, pieces[(rank + 1) % ranks].contiguous())
    for place, one in enumerate(everyone):
        pieces[(place + 1) % ranks].copy_(one)


# %% a send waits for its receive, and all ranks send first
# told: hangs
# told: dist.send(leaving, (rank + 1) % ranks)
# right at: 1
edit(
    "sending = dist.isend(leaving, (rank + 1) % ranks)  # with send, all ranks would wait",
    "dist.send(leaving, (rank + 1) % ranks)",
    "\n        sending.wait()",
    "",
)


# %% a barrier after each round
# told: A receive waits until its message has arrived
# right at: 1
edit("sending.wait()", "sending.wait()\n        dist.barrier()")


# %% keeps the tensor that it works on by its length, whatever the dtype of the next one
# told: What does your function keep from one call to the next

BOXES = {}


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    box = BOXES.setdefault(len(tensor), torch.empty_like(tensor))
    box.copy_(tensor)
    pieces = box.tensor_split(ranks)
    for number in range(2 * (ranks - 1)):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        arriving = torch.empty_like(staying)
        sending = dist.isend(leaving, after)
        dist.recv(arriving, before)
        sending.wait()
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
    tensor.copy_(box)


# %% takes the old numbers away from themselves, which makes nan of inf
# told: nan is 0 times inf
# right at: 1
edit(
    "staying + arriving if number < ranks - 1 else arriving",
    "staying - staying * (number >= ranks - 1) + arriving",
)


# %% each piece goes straight to its owner, and from there to all
# told: Is it a ring
# right at: 1, 2


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = box.tensor_split(ranks)
    others = [other for other in range(ranks) if other != rank]
    arriving = {other: torch.empty_like(pieces[rank]) for other in others}
    works = [dist.isend(pieces[other], other) for other in others]
    works += [dist.irecv(arriving[other], other) for other in others]
    for work in works:
        work.wait()
    for other in others:
        pieces[rank].add_(arriving[other])
    works = [dist.isend(pieces[rank], other) for other in others]
    works += [dist.irecv(pieces[other], other) for other in others]
    for work in works:
        work.wait()
    tensor.copy_(box)


# %% goes round with one half of the tensor, and then with the other
# told: Which of these numbers can you send together
# right at: 1


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    box = tensor.contiguous()
    for half in box.tensor_split(2):
        pieces = half.tensor_split(ranks)
        for number in range(2 * (ranks - 1)):
            leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
            arriving = torch.empty_like(staying)
            sending = dist.isend(leaving, after)
            dist.recv(arriving, before)
            sending.wait()
            staying.copy_(staying + arriving if number < ranks - 1 else arriving)
    tensor.copy_(box)


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
# told: dist.send(pieces[first].contiguous(), after)
# right at: 1

SMALL = 1000  # numbers; as if the network kept so many


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    pieces = tensor.tensor_split(ranks)
    for number in range(2 * (ranks - 1)):
        first, second = (rank - number) % ranks, (rank - number - 1) % ranks
        arriving, sending = torch.empty_like(pieces[second]), None
        if tensor.numel() < SMALL:
            sending = dist.isend(pieces[first], after)
        else:
            dist.send(pieces[first].contiguous(), after)
        dist.recv(arriving, before)
        pieces[second].copy_(pieces[second] + arriving if number < ranks - 1 else arriving)
        if sending:
            sending.wait()


# %% nobody waits for the sends
# told: still at work when your function returned
# right at: 1
edit("\n        sending.wait()", "")


# %% the last rank sends to nobody, so rank 0 receives nothing
# told: has received nothing
# right at: 1


def ring_all_reduce(tensor):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    pieces = list(tensor.tensor_split(ranks))
    for step in range(2 * (ranks - 1)):
        leaving = pieces[(rank - step) % ranks].contiguous()
        arriving = torch.empty_like(pieces[(rank - step - 1) % ranks]).contiguous()
        sending = dist.isend(leaving, rank + 1) if rank + 1 < ranks else None
        if rank > 0:
            dist.recv(arriving, rank - 1)
        if sending:
            sending.wait()
        if rank > 0:
            if step < ranks - 1:
                pieces[(rank - step - 1) % ranks].add_(arriving)
            else:
                pieces[(rank - step - 1) % ranks].copy_(arriving)


# %% sends to the rank before
# told: That is the previous rank. In which direction does the ring go
# right at: 1, 2
edit(
    "(rank - number) % ranks",
    "(rank + number) % ranks",
    "(rank - number - 1) % ranks",
    "(rank + number + 1) % ranks",
    "isend(leaving, (rank + 1)",
    "isend(leaving, (rank - 1)",
    "recv(arriving, (rank - 1)",
    "recv(arriving, (rank + 1)",
)


# %% the last piece takes what is left over, so that it is too long
# told: How long is the longest of N pieces
# right at: 1, 2
edit(
    "tensor_split(ranks)",
    "tensor_split([len(tensor) // ranks * n for n in range(1, ranks)])",
)


# %% all pieces go to rank 0, which adds them up and sends them back
# told: Everything passes through rank 0
# right at: 1, 2


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for piece in box.tensor_split(ranks):
        if rank == 0:
            for other in range(1, ranks):
                arriving = torch.empty_like(piece)
                dist.recv(arriving, other)
                piece += arriving
            for other in range(1, ranks):
                dist.send(piece, other)
        else:
            dist.send(piece, 0)
            dist.recv(piece, 0)
    tensor.copy_(box)


# %% chunk makes fewer pieces than there are ranks where the tensor is short
# told: raises IndexError
# told: How many pieces are there
# right at: 1
edit("tensor_split(ranks)", "chunk(ranks)")


# %% the other rank is 1 - rank, which is a rank at 2 ranks only
# told: one of ranks 0 to
# right at: 1, 2


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return
    other = 1 - rank
    kept, given = box.tensor_split(2) if rank == 0 else box.tensor_split(2)[::-1]
    arriving = torch.empty_like(kept)
    sending = dist.isend(given, other)
    dist.recv(arriving, other)
    sending.wait()
    kept += arriving
    sending = dist.isend(kept, other)
    dist.recv(given, other)
    sending.wait()
    tensor.copy_(box)


# %% leaves the work to a collective
# told: called all_reduce


def ring_all_reduce(tensor):
    dist.all_reduce(tensor)


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
