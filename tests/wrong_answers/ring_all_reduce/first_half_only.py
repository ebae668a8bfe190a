# wrong: a rank is left with one finished piece, and nobody passes it on
# told: passes on a complete piece
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    pieces = tensor.tensor_split(ranks)
    for number in range(ranks - 1):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        arriving = torch.empty_like(staying)
        sending = dist.isend(leaving, after)
        dist.recv(arriving, before)
        sending.wait()
        staying += arriving
