# wrong: the ranks in the middle send before they have received
# told: sent before it had received
# right at: 1, 2, 3
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    waits = []
    distance = 1
    while distance < ranks:
        if place < distance and place + distance < ranks:
            waits.append(dist.isend(box, (rank + distance) % ranks))
        distance *= 2
    if place > 0:
        parent = place - 2 ** (place.bit_length() - 1)
        waits.append(dist.irecv(box, (parent + src) % ranks))
    for wait in waits:
        wait.wait()
    tensor.copy_(box)
