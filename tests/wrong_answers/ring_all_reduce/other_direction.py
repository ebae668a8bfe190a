# wrong: sends to the rank before
# told: That is the previous rank. In which direction does the ring go
# right at: 1, 2
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    pieces = box.tensor_split(ranks)
    for number in range(2 * (ranks - 1)):
        leaving, staying = pieces[(rank + number) % ranks], pieces[(rank + number + 1) % ranks]
        arriving = torch.empty_like(staying)
        sending = dist.isend(leaving, before)
        dist.recv(arriving, after)
        sending.wait()
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
    tensor.copy_(box)
