# wrong: reads from the beginning of the storage, where another tensor's numbers are
# told: Where does a slice begin there
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(max(lengths).item(), *tensor.shape[1:])
    flat = tensor.new_empty(0).set_(tensor.untyped_storage(), 0, (tensor.numel(),))
    padded.view(-1)[: len(flat)] = flat
    everyone = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
