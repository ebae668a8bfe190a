# wrong: leaves the second half to a collective, which takes pieces of one size
# told: and the task allows no collective
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    if ranks == 1:
        return
    pieces = list(tensor.tensor_split(ranks))
    for step in range(ranks - 1):
        leaving = pieces[(rank - step) % ranks].contiguous()
        staying = pieces[(rank - step - 1) % ranks]
        sending = dist.isend(leaving, (rank + 1) % ranks)
        arriving = torch.empty_like(staying).contiguous()
        dist.recv(arriving, (rank - 1) % ranks)
        staying.add_(arriving)
        sending.wait()
    everyone = [torch.empty_like(piece) for piece in pieces]
    dist.all_gather(everyone, pieces[(rank + 1) % ranks].contiguous())
    for place, one in enumerate(everyone):
        pieces[(place + 1) % ranks].copy_(one)
