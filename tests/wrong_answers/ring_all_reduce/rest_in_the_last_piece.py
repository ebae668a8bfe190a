# wrong: the last piece takes what is left over, so that it is too long
# told: How long is the longest of N pieces
# right at: 1, 2
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    length = len(box) // ranks
    pieces = [box[i * length : (i + 1) * length] for i in range(ranks - 1)]
    pieces.append(box[(ranks - 1) * length :])
    for number in range(2 * (ranks - 1)):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        arriving = torch.empty_like(staying)
        sending = dist.isend(leaving, after)
        dist.recv(arriving, before)
        sending.wait()
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
    tensor.copy_(box)
