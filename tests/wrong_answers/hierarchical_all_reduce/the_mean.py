# wrong: divides by the number of ranks
# told: This is the mean over the ranks
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    dist.reduce(tensor, group_dst=0, group=inside)
    if between is not None:
        dist.all_reduce(tensor, group=between)
        tensor.copy_(tensor / dist.get_world_size())
    dist.broadcast(tensor, group_src=0, group=inside)
