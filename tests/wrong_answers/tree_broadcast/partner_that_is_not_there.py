# wrong: the other rank may be one beyond the last
# told: one of ranks 0 to
# told: Which rank comes after the last one
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    distance = 1
    while distance < ranks:
        if place < distance:
            dist.send(tensor, rank + distance)
        elif place < 2 * distance:
            dist.recv(tensor, rank - distance)
        distance *= 2
