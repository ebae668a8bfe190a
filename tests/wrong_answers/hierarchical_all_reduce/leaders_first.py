# wrong: the leaders add up first, then each node
# told: before they knew their nodes' sums
# right at: 1
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    if between is not None:
        dist.all_reduce(tensor, group=between)
    dist.all_reduce(tensor, group=inside)
