# %% a barrier after each round
# told: What does the barrier add
# right at: 1
edit("distance *= 2", "distance *= 2\n        dist.barrier()")


# %% src gives its numbers to rank 0 first, whose tree reaches all ranks, src too
# told: Which rank sends to one that already has the numbers
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if src != 0 and rank == src:
        dist.send(tensor, 0)
    if src != 0 and rank == 0:
        dist.recv(tensor, src)
    distance = 1
    while distance < ranks:
        if rank < distance and rank + distance < ranks:
            dist.send(tensor, rank + distance)
        elif distance <= rank < 2 * distance:
            dist.recv(tensor, rank - distance)
        distance *= 2


# %% each rank passes the tensor on to the next one
# told: in round 2, rank 1 has the numbers and is idle
# right at: 1, 2, 3
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    if place > 0:
        dist.recv(box, (rank - 1) % ranks)
    if place < ranks - 1:
        dist.send(box, (rank + 1) % ranks)
    tensor.copy_(box)


# %% the numbers travel in float32, whatever the tensor's dtype is
# told: a message in float32
# right at: 1
edit(
    "    place =",
    "    if ranks == 1:\n        return\n    place =",
    "tensor.contiguous()",
    "tensor.float().contiguous()",
)


# %% all ranks receive first, and src is no exception
# told: waits in recv
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return
    place = (rank - src) % ranks
    dist.recv(tensor, (rank - 1) % ranks)
    if place < ranks - 1:
        dist.send(tensor, (rank + 1) % ranks)


# %% begins with an empty list of those who have the numbers, without src
# told: No rank has sent anything
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    box = tensor.contiguous()
    having = []
    for _ in range((ranks - 1).bit_length()):
        lacking = [(src + place) % ranks for place in range(ranks)]
        lacking = [one for one in lacking if one not in having]
        pairs = list(zip(having, lacking, strict=False))
        for sender, receiver in pairs:
            if rank == sender:
                dist.send(box, receiver)
            elif rank == receiver:
                dist.recv(box, sender)
            having.append(receiver)
    tensor.copy_(box)


# %% starts its sends and returns
# told: still at work when your function returned
# right at: 1
edit("dist.send", "dist.isend")


# %% sends the numbers one by one
# told: the number of messages to rank 0 is 6
# told: can one message do
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    flat = tensor.reshape(-1)
    distance = 1
    while distance < ranks:
        for i in range(flat.numel()):
            if place < distance and place + distance < ranks:
                dist.send(flat[i : i + 1], (rank + distance) % ranks)
            elif distance <= place < 2 * distance:
                dist.recv(flat[i : i + 1], (rank - distance) % ranks)
        distance *= 2


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
import torch.distributed as dist


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
# told: the number of messages to rank
# told: Which ranks have the numbers after each round
# right at: 1, 2, 4
edit("while distance < ranks", "while 2 * distance <= ranks")


# %% the tree always begins at rank 0
# told: What is src for
# right at: 1
edit("(rank - src) % ranks", "rank")


# %% src sends to all others, one after the other
# told: in round 2, rank 0 has the numbers and is idle
# right at: 1, 2, 3
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == src:
        for other in range(ranks):
            if other != src:
                dist.send(box, other)
    else:
        dist.recv(box, src)
    tensor.copy_(box)


# %% a tree in which each rank sends twice and is done then
# told: in round 3, rank 1 has the numbers and is idle
# right at: 1, 2, 3, 4, 5
import torch.distributed as dist


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


# %% leaves the work to a collective
# told: called broadcast
# told: Which sends and receives
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    dist.broadcast(tensor, src)


# %% sends the shape first, in int64
# told: the number of messages to rank 0 is 2
# told: Not all of these messages are as long as the tensor
# right at: 1
def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    box, shape = tensor.contiguous(), torch.tensor(tensor.shape, dtype=torch.int64)
    distance = 1
    while distance < ranks:
        for message in (shape, box):
            if place < distance and place + distance < ranks:
                dist.send(message, (rank + distance) % ranks)
            elif distance <= place < 2 * distance:
                dist.recv(message, (rank - distance) % ranks)
        distance *= 2
    tensor.copy_(box)
