# wrong: adds up in what reshape returns, which is a copy of a transposed tensor
# told: Into which memory do your operations write
# right at: 1
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    flat = tensor.reshape(-1)
    dist.reduce(flat, group_dst=0, group=inside)
    if between is not None:
        dist.all_reduce(flat, group=between)
    dist.broadcast(flat, group_src=0, group=inside)
