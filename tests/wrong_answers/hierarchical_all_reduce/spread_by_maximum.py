# wrong: takes the largest number of a node for the sum
# told: Is a sum always larger than its parts
# right at: 1,2,3
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
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=inside)
