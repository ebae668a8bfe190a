# wrong: adds up inside, then all ranks add up over the world
# told: counted several times. Which steps add them
# right at: 1
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    dist.all_reduce(tensor, group=inside)
    dist.all_reduce(tensor)
