# wrong: one round for each half, which is enough at 2 ranks only
# told: After how many rounds has a number reached
# right at: 1, 2
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    if ranks == 1:
        return
    pieces = box.tensor_split(ranks)
    for number in range(2):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        arriving = torch.empty_like(staying)
        sending = dist.isend(leaving, after)
        dist.recv(arriving, before)
        sending.wait()
        staying.copy_(staying + arriving if number == 0 else arriving)
    tensor.copy_(box)
