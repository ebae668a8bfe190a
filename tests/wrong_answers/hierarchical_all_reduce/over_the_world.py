# wrong: a plain all_reduce: the right sum, and all ranks between the nodes
# told: rank 1 took part in all_reduce
# told: What can another rank tell the other nodes
# right at: 1,2
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    dist.all_reduce(tensor)
