# wrong: gathers to rank 0, the others have nothing
# told: After gather or reduce, only one rank
# right at: 1
import torch
import torch.distributed as dist


def gather_uneven(tensor):
    length = torch.tensor(len(tensor))
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(max(lengths).item(), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in lengths] if dist.get_rank() == 0 else None
    dist.gather(padded, everyone, dst=0)
    if dist.get_rank() != 0:
        return []
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
