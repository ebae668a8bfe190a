# wrong: the numbers travel in float32, whatever the tensor's dtype is
# told: a message in float32
# right at: 1
import torch
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return
    place = (rank - src) % ranks
    box = torch.empty(tensor.shape).copy_(tensor)
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.send(box, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            dist.recv(box, (rank - distance) % ranks)
        distance *= 2
    tensor.copy_(box)
