# wrong: rank 0 sends the sum to all ranks of all nodes
# told: took part in all_reduce and broadcast: 24 bytes sent, 48 received
# right at: 1
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
    dist.broadcast(tensor, src=0)
