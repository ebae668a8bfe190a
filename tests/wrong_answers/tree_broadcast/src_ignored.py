# wrong: the tree always begins at rank 0
# told: What is src for
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    distance = 1
    while distance < ranks:
        if rank < distance and rank + distance < ranks:
            dist.send(tensor, rank + distance)
        elif distance <= rank < 2 * distance:
            dist.recv(tensor, rank - distance)
        distance *= 2
