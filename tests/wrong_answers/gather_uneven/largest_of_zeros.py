# wrong: every rank fills its own row of zeros, and MAX makes zeros of negative numbers
# told: Negative numbers have become 0
# right at: 1
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    table = tensor.new_zeros(len(lengths), max(lengths).item(), *tensor.shape[1:])
    table[dist.get_rank(), : len(tensor)] = tensor
    dist.all_reduce(table, op=dist.ReduceOp.MAX)
    return [one[:rows] for one, rows in zip(table, lengths, strict=True)]
