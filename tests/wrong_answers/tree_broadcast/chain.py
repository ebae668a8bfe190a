# wrong: each rank passes the tensor on to the next one
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
