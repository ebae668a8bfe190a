# wrong: every leader gathers the sums of all nodes, and adds them up
# told: if there were a hundred nodes
# right at: 1
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    dist.reduce(tensor, group_dst=0, group=inside)
    if between is not None:
        sums = [torch.empty_like(tensor) for _ in range(dist.get_world_size(between))]
        dist.all_gather(sums, tensor, group=between)
        tensor.copy_(sum(sums))
    dist.broadcast(tensor, group_src=0, group=inside)
