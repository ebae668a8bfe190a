# wrong: passes whole tensors round the ring
# told: This message is the whole tensor
# right at: 1
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    passing = tensor.clone()
    for _ in range(ranks - 1):
        arriving = torch.empty_like(passing)
        sending = dist.isend(passing, after)
        dist.recv(arriving, before)
        sending.wait()
        tensor += arriving
        passing = arriving
