# wrong: one tensor of all places, in which index finds no tuple
# told: Is this a list
import torch


def where_is(gpus: list[int]) -> list[tuple[int, int]]:
    """(node, local rank) of every rank, in the order of the ranks; node i has `gpus[i]` GPUs."""
    nodes = torch.repeat_interleave(torch.arange(len(gpus)), torch.tensor(gpus))
    return torch.stack([nodes, torch.cat([torch.arange(count) for count in gpus])], dim=1)
