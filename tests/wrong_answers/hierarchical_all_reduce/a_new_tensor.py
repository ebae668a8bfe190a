# wrong: the sum is in a copy
# told: The sum is in another tensor
# right at: 1
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    total = tensor.clone()
    dist.reduce(total, group_dst=0, group=inside)
    if between is not None:
        dist.all_reduce(total, group=between)
    dist.broadcast(total, group_src=0, group=inside)
    return total
