# wrong: as many rounds as log2 N, rounded down
# told: the number of messages to rank
# told: Which ranks have the numbers after each round
# right at: 1, 2, 4
import torch.distributed as dist


def tree_broadcast(tensor, src=0):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % ranks
    for number in range(ranks.bit_length() - 1):
        distance = 2**number
        if place < distance:
            dist.send(box, (rank + distance) % ranks)
        elif place < 2 * distance:
            dist.recv(box, (rank - distance) % ranks)
    tensor.copy_(box)
