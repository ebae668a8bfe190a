# wrong: the numbers are tensors, which a set or a dict does not find
# told: Nodes and local ranks are whole numbers
import torch


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    nodes = torch.repeat_interleave(torch.arange(len(gpus)), torch.tensor(gpus))
    return list(zip(nodes, torch.cat([torch.arange(count) for count in gpus]), strict=True))
