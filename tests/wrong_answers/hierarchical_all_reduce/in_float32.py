# wrong: adds up in float32, whatever the dtype is
# told: In which dtype do your operations send
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    total = tensor.to(torch.float32)
    dist.reduce(total, group_dst=0, group=inside)
    if between is not None:
        dist.all_reduce(total, group=between)
    dist.broadcast(total, group_src=0, group=inside)
    tensor.copy_(total)
