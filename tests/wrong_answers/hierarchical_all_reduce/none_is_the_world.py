# wrong: ranks that are no leaders call on group None, which is the world
# told: group=None means the world
# right at: 1
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    dist.reduce(tensor, group_dst=0, group=inside)
    dist.all_reduce(tensor, group=between)
    dist.broadcast(tensor, group_src=0, group=inside)
