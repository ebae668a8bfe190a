# wrong: makes the tensors alike by cutting them to the shortest
# told: What decides where you cut it
# right at: 1
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    cut = tensor[: min(lengths).item()].contiguous()
    everyone = [torch.empty_like(cut) for _ in lengths]
    dist.all_gather(everyone, cut)
    return everyone
