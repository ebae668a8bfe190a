# %% src sends to the next rank once more in the end
# told: Which rank sends to one that already has the numbers
# right at: 1
edit(
    "    tensor.copy_(box)",
    """
    if ranks > 1 and place == 0:
        dist.send(box, (rank + 1) % ranks)
    elif place == 1:
        dist.recv(box, src)
    tensor.copy_(box)""",
)


# %% each rank passes the tensor on to the next one
# told: in round 2, rank 1 has the numbers and is idle
# right at: 1, 2, 3
def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    if place > 0:
        dist.recv(box, (rank - 1) % ranks)
    if place < ranks - 1:
        dist.send(box, (rank + 1) % ranks)
    tensor.copy_(box)


# %% the other rank may be one beyond the last
# told: one of ranks 0 to
# told: Which rank comes after the last one
# right at: 1
edit(
    "place < distance and place + distance < ranks",
    "place < distance",
    "(rank + distance) % ranks",
    "rank + distance",
)


# %% the ranks in the middle send before they have received
# told: sent before it had received
# right at: 1, 2, 3
def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    waits = []
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            waits.append(dist.isend(box, (rank + distance) % ranks))
        distance *= 2
    if place > 0:
        parent = place - 2 ** (place.bit_length() - 1)
        waits.append(dist.irecv(box, (parent + src) % ranks))
    for wait in waits:
        wait.wait()
    tensor.copy_(box)


# %% as many rounds as log2 N, rounded down
# told: messages to this rank: 0
# told: Which ranks have the numbers after each round
# right at: 1, 2, 4
edit("while distance < ranks", "while 2 * distance <= ranks")


# %% a tree in which each rank sends twice and is done then
# told: in round 3, rank 1 has the numbers and is idle
# right at: 1, 2, 3, 4, 5
def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    if place > 0:
        dist.recv(box, ((place - 1) // 2 + src) % ranks)
    for child in (2 * place + 1, 2 * place + 2):
        if child < ranks:
            dist.send(box, (child + src) % ranks)
    tensor.copy_(box)


# %% a barrier after each round
# told: A receive waits until its message has arrived
# right at: 1
edit("distance *= 2", "distance *= 2\n        dist.barrier()")
