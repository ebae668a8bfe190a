# wrong: what travels is float32
# told: In which dtype are the numbers sent
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = torch.zeros(max(lengths).item(), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
