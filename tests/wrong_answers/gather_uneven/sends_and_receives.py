# wrong: gathers the lengths, and then sends each tensor to every other rank
# told: so that one collective moves them all
# right at: 1
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, torch.tensor([len(tensor)]))
    everyone = [tensor.new_empty(int(length), *tensor.shape[1:]) for length in lengths]
    everyone[rank].copy_(tensor)
    others = [other for other in range(ranks) if other != rank]
    works = [dist.isend(tensor.contiguous(), other) for other in others]
    works += [dist.irecv(everyone[other], other) for other in others]
    for work in works:
        work.wait()
    return everyone
