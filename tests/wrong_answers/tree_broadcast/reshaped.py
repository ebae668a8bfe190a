# wrong: fills what reshape gives, which is a copy where the tensor is not contiguous
# told: a view that is not contiguous
# told: is it the tensor's own
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    flat = tensor.reshape(-1)
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.send(flat, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            dist.recv(flat, (rank - distance) % ranks)
        distance *= 2
