# wrong: each piece goes straight to its owner, and from there to all
# told: Is it a ring
# right at: 1, 2
import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    box = tensor.contiguous()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = box.tensor_split(ranks)
    others = [other for other in range(ranks) if other != rank]
    arriving = {other: torch.empty_like(pieces[rank]) for other in others}
    works = [dist.isend(pieces[other], other) for other in others]
    works += [dist.irecv(arriving[other], other) for other in others]
    for work in works:
        work.wait()
    for other in others:
        pieces[rank].add_(arriving[other])
    works = [dist.isend(pieces[rank], other) for other in others]
    works += [dist.irecv(pieces[other], other) for other in others]
    for work in works:
        work.wait()
    tensor.copy_(box)
