# wrong: as many collectives as ranks, and one more
# told: How many would it take with 100 ranks
# right at: 1
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    everyone = [tensor.new_empty(n.item(), *tensor.shape[1:]) for n in lengths]
    everyone[dist.get_rank()] = tensor.contiguous()
    for rank, one in enumerate(everyone):
        dist.broadcast(one, src=rank)
    return everyone
