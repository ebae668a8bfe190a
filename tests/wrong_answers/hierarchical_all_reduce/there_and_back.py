# wrong: one leader adds up and sends to the others: two trips
# told: took part in reduce and broadcast
# told: Each operation is a trip between the nodes
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
        dist.reduce(tensor, group_dst=0, group=between)
        dist.broadcast(tensor, group_src=0, group=between)
    dist.broadcast(tensor, group_src=0, group=inside)
