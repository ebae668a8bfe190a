# wrong: the length has the tensor's dtype, which may not hold it
# told: Which whole numbers can that dtype hold
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor), dtype=tensor.dtype)
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    rows = [int(one) for one in lengths]
    padded = tensor.new_zeros(max(*rows, len(tensor)), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(everyone, padded)
    return [one[:n] for one, n in zip(everyone, rows, strict=True)]
