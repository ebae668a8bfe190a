# wrong: sends the numbers one by one
# told: What does a message hold
# right at: 1
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    flat = tensor.reshape(-1)
    distance = 1
    while distance < ranks:
        for i in range(flat.numel()):
            if place < distance and place + distance < ranks:
                dist.send(flat[i : i + 1], (rank + distance) % ranks)
            elif distance <= place < 2 * distance:
                dist.recv(flat[i : i + 1], (rank - distance) % ranks)
        distance *= 2
