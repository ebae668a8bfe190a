# wrong: padding for tensors of one dimension
# told: which other dimensions does the result have
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = torch.zeros(max(lengths).item(), dtype=tensor.dtype)
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
