# wrong: the second half begins with piece r again, which is not finished on rank r
# told: ranks have added to it by then
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    pieces = tensor.tensor_split(ranks)
    for half in range(2):
        for number in range(ranks - 1):
            leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
            arriving = torch.empty_like(staying)
            sending = dist.isend(leaving, after)
            dist.recv(arriving, before)
            sending.wait()
            staying.copy_(staying + arriving if half == 0 else arriving)
