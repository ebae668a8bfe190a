# wrong: a barrier after each round
# told: What does the barrier add
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    box = tensor.contiguous()
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.send(box, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            dist.recv(box, (rank - distance) % ranks)
        distance *= 2
        dist.barrier()
    tensor.copy_(box)
