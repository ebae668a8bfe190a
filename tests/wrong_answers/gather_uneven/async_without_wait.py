# wrong: reads the tensors before they are there
# told: still at work when your function returned
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(max(lengths).item(), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    everyone = [padded.clone() for _ in lengths]
    dist.all_gather(everyone, padded, async_op=True)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
