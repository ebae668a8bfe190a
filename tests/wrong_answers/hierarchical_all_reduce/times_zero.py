# wrong: ranks that are no leaders multiply by 0, which makes nan of inf
# told: inf times 0 is nan
# right at: 1,2
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    dist.all_reduce(tensor, group=inside)
    if between is not None:
        dist.all_reduce(tensor, group=between)
    tensor.mul_(between is not None)
    dist.all_reduce(tensor, group=inside)
