# wrong: only small tensors are sent with isend; with large ones all ranks send first and wait
# told: hangs
# told: dist.send(pieces[first].contiguous(), after)
# right at: 1
import torch
import torch.distributed as dist

SMALL = 1000  # numbers; as if the network kept so many


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    pieces = tensor.tensor_split(ranks)
    for number in range(2 * (ranks - 1)):
        first, second = (rank - number) % ranks, (rank - number - 1) % ranks
        arriving, sending = torch.empty_like(pieces[second]), None
        if tensor.numel() < SMALL:
            sending = dist.isend(pieces[first], after)
        else:
            dist.send(pieces[first].contiguous(), after)
        dist.recv(arriving, before)
        pieces[second].copy_(pieces[second] + arriving if number < ranks - 1 else arriving)
        if sending:
            sending.wait()
