# wrong: a tree in which each rank sends twice and is done then
# told: In round 3, rank 0 has the numbers and is idle
# right at: 1, 2, 3, 4
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    if place > 0:
        dist.recv(tensor, ((place - 1) // 2 + src) % ranks)
    for child in (2 * place + 1, 2 * place + 2):
        if child < ranks:
            dist.send(tensor, (child + src) % ranks)
