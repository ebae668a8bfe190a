# wrong: comes back with one dimension
# told: Where did you lose its other dimensions
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    flat = tensor.flatten()
    length = torch.tensor(len(flat))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = flat.new_zeros(max(lengths).item())
    padded[: len(flat)] = flat
    everyone = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
