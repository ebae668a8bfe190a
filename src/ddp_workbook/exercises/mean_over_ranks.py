"""Each rank holds a number; every rank is to know the mean of all.

This is the smallest exercise of the workbook: it shows how the others work. Write your lines in
place of the one with TODO, run the cell, and read what it says.
"""

import torch
import torch.distributed as dist

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "Which collective leaves every rank with something made of all their numbers?",
    "all_reduce works on a tensor, in place, and adds up. How many numbers were added?",
]

SIZES = (1, 2, 3, 4)
VALUES = [4.0, -2.0, 7.0, 1.0]  # at every world size, sum, mean and largest are different numbers


def mean_over_ranks(value: float) -> float:
    """Mean of `value` over all ranks, the same number on each of them."""
    ### BEGIN SOLUTION
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
    ### END SOLUTION


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare with the mean, at each world size."""
    for size in sizes:
        values = VALUES[:size]
        answers, _ = attempt_on_ranks(attempt, each=values)
        compare_answers(answers, values)
    return "every rank returns the mean of all, at 1 to 4 ranks"


def compare_answers(answers: list, values: list[float]) -> None:
    """Raise NotYet where a rank's answer is not the mean."""
    mean = sum(values) / len(values)
    for rank, answer in enumerate(answers):
        if isinstance(answer, torch.Tensor) and answer.numel() == 1:
            answer = answer.item()
        if isinstance(answer, float | int) and abs(answer - mean) < 1e-5:
            continue
        raise NotYet(
            f"the ranks held {values}",
            f"{in_words(answer)} on rank {rank}",
            f"{mean:g}, the mean, on every rank",
            look_at(answer, values),
        )


def look_at(answer: object, values: list[float]) -> str:
    """The thought behind a wrong answer."""
    if isinstance(answer, torch.Tensor | list | tuple | dict | str):
        return "What kind of value does the docstring ask for?"
    if answer is None:
        return "Does the function return what it has computed? all_reduce itself returns nothing."
    if answer == sum(values):
        return "This is the sum. By how many numbers must it be divided?"
    if answer in values:
        return "This is one rank's own number. Has anything been exchanged before you return it?"
    return "Which of the ranks' numbers are in your result, and how often?"
