# wrong: src=0 is rank 0 of the world, which is not in each node
# told: Which arguments take the rank inside the group
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
    dist.broadcast(tensor, src=0, group=inside)
