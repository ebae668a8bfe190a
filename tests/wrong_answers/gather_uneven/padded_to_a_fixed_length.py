# wrong: pads to 150 rows, whatever comes
# told: To which length do you pad, and which dtype
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(150, *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
