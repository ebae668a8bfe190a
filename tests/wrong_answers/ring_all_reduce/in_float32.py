# wrong: adds up in float32, whatever the dtype
# told: a message in float32
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    if ranks == 1:
        return
    pieces = tensor.tensor_split(ranks)
    for number in range(2 * (ranks - 1)):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        arriving = torch.empty(staying.shape)
        sending = dist.isend(leaving.float(), after)
        dist.recv(arriving, before)
        sending.wait()
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
