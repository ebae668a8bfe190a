# wrong: the last rank sends to nobody, so rank 0 receives nothing
# told: has received nothing
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    ranks, rank = dist.get_world_size(), dist.get_rank()
    pieces = list(tensor.tensor_split(ranks))
    for step in range(2 * (ranks - 1)):
        leaving = pieces[(rank - step) % ranks].contiguous()
        arriving = torch.empty_like(pieces[(rank - step - 1) % ranks]).contiguous()
        sending = dist.isend(leaving, rank + 1) if rank + 1 < ranks else None
        if rank > 0:
            dist.recv(arriving, rank - 1)
        if sending:
            sending.wait()
        if rank > 0:
            if step < ranks - 1:
                pieces[(rank - step - 1) % ranks].add_(arriving)
            else:
                pieces[(rank - step - 1) % ranks].copy_(arriving)
