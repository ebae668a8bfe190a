# wrong: starts its sends and returns
# told: still at work when your function returned
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.isend(tensor, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            dist.recv(tensor, (rank - distance) % ranks)
        distance *= 2
