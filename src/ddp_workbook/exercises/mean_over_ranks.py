"""Each rank holds a number; every rank is to know the mean of all.

This is the smallest exercise of the workbook: it shows how the others work. Write your lines in
place of the one with TODO, run the cell, and read what it says.
"""

import torch
import torch.distributed as dist

from ddp_workbook.exercises import OnRanks, When

MINUTES = 5
HINTS = [
    "Which collective leaves every rank with something made of all their numbers?",
    "all_reduce works on a tensor, in place, and adds up. How many numbers were added?",
]


def mean_over_ranks(value: float) -> float:
    """Mean of `value` over all ranks, the same number on each of them."""
    ### BEGIN SOLUTION
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()
    ### END SOLUTION


CHECK = OnRanks(
    cases=[[4.5, -2.25, 7.0, 1.5], [-3.5, -1.25, -8.0, -2.75]],
    called="the ranks held {case}",
    right=lambda values: sum(values) / len(values),
    mistakes={
        "What kind of value does the docstring ask for?": When(
            lambda seen: isinstance(seen.came, torch.Tensor | list | tuple | dict | str)
        ),
        "Does the function return what it has computed? all_reduce itself returns nothing.": When(
            lambda seen: seen.came is None
        ),
        "This is the sum. By how many numbers must it be divided?": lambda values: sum(values),
        "This is the mean, divided by the number of ranks once more. Which line divides first?": (
            lambda values: sum(values) / len(values) ** 2
        ),
        "This is the largest, or the smallest. What makes a mean of all?": When(
            lambda seen: seen.came in (max(seen.case), min(seen.case)) and "all_reduce" in seen.ops
        ),
        "This is one rank's own number, and nothing was sent. How do the others get to know it?": (
            When(lambda seen: seen.came == seen.case[seen.rank] and not seen.ops)
        ),
        "This is one rank's own number. Into which tensor does the collective write?": (
            lambda values, rank: values[rank]
        ),
        "After reduce, one rank alone has the sum. How do the others get it?": When(
            lambda seen: "reduce" in seen.ops
        ),
        "The mean is a fraction. Which line makes a whole number of it?": (
            lambda values: float(sum(values) // len(values))
        ),
    },
    otherwise="Which of the ranks' numbers are in your result, and how often?",
    proves="every rank returns the mean of all, at 1 to 4 ranks",
)
