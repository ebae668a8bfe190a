# wrong: the leaders keep the sum for themselves
# told: The leaders have the sum over all ranks
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
