# wrong: src gives its numbers to rank 0 first, whose tree reaches all ranks, src too
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
