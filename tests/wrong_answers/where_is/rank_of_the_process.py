# wrong: asks for the rank of a process that is in no group
# told: No ranks are running here
import torch.distributed as dist


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    rank = dist.get_rank()
    return [divmod(rank, gpus[0])]
