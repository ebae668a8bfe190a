# wrong: the leaders pass their sums round a ring, one operation for each other node
# told: took part in send and recv
# told: Each operation is a trip between the nodes
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
    if between is not None and between.size() > 1:
        leaders, own = between.size(), dist.get_rank(between)
        passed_on = tensor.clone(memory_format=torch.contiguous_format)
        for _ in range(leaders - 1):
            came = torch.empty_like(passed_on)
            work = dist.isend(passed_on, group=between, group_dst=(own + 1) % leaders)
            dist.recv(came, group=between, group_src=(own - 1) % leaders)
            work.wait()
            tensor += came
            passed_on = came
    dist.broadcast(tensor, group_src=0, group=inside)
