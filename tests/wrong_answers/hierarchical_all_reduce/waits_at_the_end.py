# wrong: starts all three, and waits for them at the end
# told: while an earlier one is still running
# right at: 1
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


def hierarchical_all_reduce(
    tensor: Tensor, inside: ProcessGroup, between: ProcessGroup | None
) -> None:
    """Replace `tensor` (any shape) by its sum over all ranks, in place, node by node."""
    works = [dist.reduce(tensor, group_dst=0, group=inside, async_op=True)]
    if between is not None:
        works.append(dist.all_reduce(tensor, group=between, async_op=True))
    works.append(dist.broadcast(tensor, group_src=0, group=inside, async_op=True))
    for work in works:
        work.wait()
