"""Samples dealt to ranks: what the checks of the samplers' exercises compare with, and say."""

from typing import Any

import torch

from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.exercises.judging.values import in_words

Lists = list[list[int]]  # the samples of each rank


def compare_type(called: str, rank: int, answer: Any) -> None:
    """Raise NotYet if it is no list of int."""
    came_back, look = in_words(answer), "Which of your lines makes a list of plain numbers?"
    if answer is None:
        look = "Does the function return its list, on every path?"
    elif type(answer) is not list:
        came_back += f", of type {type(answer).__name__}"
    elif kinds := {type(one).__name__ for one in answer} - {"int"}:
        came_back += f", with {' and '.join(sorted(kinds))} in it"
    else:
        return
    raise NotYet(called, f"on rank {rank}: {came_back}", "a list of int", look)


def in_text(lists: Lists) -> str:
    """A line for each rank."""
    return "\n".join(f"rank {rank}: {in_words(own)}" for rank, own in enumerate(lists))


def shuffled(n: int, seed: int) -> list[int]:
    """A permutation, as the task says."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


def dealt(some: list[int], size: int) -> Lists:
    """One after the other to each rank."""
    return [some[rank::size] for rank in range(size)]


def in_blocks(some: list[int], size: int) -> list[Lists]:
    """A block to each rank: the last ones shorter, or one shorter than others at most."""
    long, places = -(-len(some) // size), torch.arange(len(some)).tensor_split(size)
    return [
        [some[rank * long :][:long] for rank in range(size)],
        [[some[place] for place in block] for block in places],
    ]
