# wrong: a later call writes into the tensors that an earlier one has returned
# told: Do the results of two calls share memory
import torch
import torch.distributed as dist

BUFFERS = {}


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(max(lengths).item(), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    key = padded.shape, padded.dtype
    everyone = BUFFERS.setdefault(key, [torch.empty_like(padded) for _ in lengths])
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
