# wrong: adds up inside the node a second time, to pass the sum on
# told: The last step adds again inside the node
# right at: 1
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
    dist.all_reduce(tensor, group=inside)
