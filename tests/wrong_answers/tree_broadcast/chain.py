# wrong: each rank passes the tensor on to the next one
# told: In round 2, rank 0 has the numbers and is idle
# right at: 1, 2, 3
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    if place > 0:
        dist.recv(tensor, (rank - 1) % ranks)
    if place < ranks - 1:
        dist.send(tensor, (rank + 1) % ranks)
