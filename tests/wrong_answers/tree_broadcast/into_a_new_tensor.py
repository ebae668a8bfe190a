# wrong: receives in a tensor of its own, which the caller never sees
# told: but not its tensor
# told: tree_broadcast(tensor, src=1)
# right at: 1
import torch
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            dist.send(tensor, (rank + distance) % ranks)
        elif distance <= place < 2 * distance:
            received = torch.empty_like(tensor)
            dist.recv(received, (rank - distance) % ranks)
            tensor = received
        distance *= 2
    return tensor
