# wrong: src sends to all others, one after the other
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
