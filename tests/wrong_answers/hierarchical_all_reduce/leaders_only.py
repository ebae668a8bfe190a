# wrong: the leaders add up what they have, without their nodes
# told: Only the leaders' numbers are in this sum
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
    dist.broadcast(tensor, group_src=0, group=inside)
