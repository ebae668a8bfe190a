"""Each rank holds a number. Return the mean of all these numbers, on every rank.

`value` is this rank's own number, and the ranks are connected already. This is the smallest
exercise of the workbook, to show how the others work: run the cell as soon as you have written
something, and read what it says.
"""

import math

import torch
import torch.distributed as dist

from ddp_workbook.judging import (
    Comparison,
    DistributedCheck,
    Edit,
    Observation,
    body,
    edit,
)

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


CASES = [
    [4.5, 7.75, -2.25, 1.3],
    [-3.5, -1.25, -8.6, -2.75],
    [4.5, -1.25, -2.25, -2.75],  # each rank has seen its own number, with other ones elsewhere
    [-1.6, 2.7, 2.4, -2.8],  # added in another order, their sum has other digits
    [0.0, 2.6, 0.0, -7.25],
    [1.5, math.nan, 2.25, 3.1],
]

ITEM = "total.item() / dist.get_world_size()"


def gather_and_return(result: str) -> Edit:
    """A mistake in what is made of the gathered `values`."""
    return body(f"""
        parts = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, torch.tensor(value))
        values = torch.stack(parts)
        return {result}
    """)


def equals_rank_0(obs: Observation) -> bool:
    """Whether a rank has the number that rank 0 has, bit for bit; nan equals nan."""
    here, there = float(obs.actual), float(obs.all_ranks[0].actual)
    return here == there or (math.isnan(here) and math.isnan(there))


CHECK = DistributedCheck(
    cases=CASES,
    call_text="the ranks held {values}",
    compare={
        "mean": Comparison(
            "Which of the ranks' numbers are in your result, and how often?",
            lambda values: sum(values) / len(values),
        ),
        "same digits": Comparison(
            "Do all ranks add in the same order? The last digits of a sum depend on it.",
            True,
            select=equals_rank_0,
            actual=lambda obs: (
                f"{obs.actual} on rank {obs.rank}, {obs.all_ranks[0].actual} on rank 0"
            ),
            required="the same number on every rank, to the last digit",
        ),
    },
    mistakes={
        "This is the sum. By how many numbers must it be divided?": edit(
            " / dist.get_world_size()", ""
        ),
        "This is the mean, divided by the number of ranks once more. Which line divides first?": (
            edit("get_world_size()", "get_world_size() ** 2")
        ),
        "This is the sum, divided by one less than the number of ranks. How many numbers were "
        "added?": edit("dist.get_world_size()", "max(1, dist.get_world_size() - 1)"),
        "This is rank {rank}'s own number, and nothing was sent. How do the others get to know "
        "it?": body("return value"),
        "This is rank {rank}'s own number. Into which tensor does the collective write?": edit(
            "total.item() / dist.get_world_size()", "value"
        ),
        "This is rank {rank}'s own number, divided by the number of ranks. Which tensor holds the "
        "sum?": edit("total.item()", "value"),
        "This is the largest number, or the smallest. Which operation adds up?": [
            edit("(total)", f"(total, dist.ReduceOp.{op})", ITEM, "total.item()")
            for op in ("MAX", "MIN")
        ],
        "This is rank 0's number on every rank. Where are the others added?": edit(
            "all_reduce(total)", "broadcast(total, src=0)", ITEM, "total.item()"
        ),
        "This is the last rank's number on every rank. Does your list hold several tensors, or "
        "one tensor several times?": edit(
            "all_reduce(total)", "broadcast(total, dist.get_world_size() - 1)", ITEM, "total.item()"
        ),
        "This is a number from the middle. Which of the ranks' numbers does a mean add up?": [
            gather_and_return("(values.min() + values.max()).item() / 2"),
            gather_and_return("values.quantile(0.5).item()"),
            gather_and_return("values.median().item()"),
        ],
        "A nan counts as 0 here, or is left out. What is the sum if one of the numbers is nan?": [
            gather_and_return("values.nan_to_num(0).mean().item()"),
            gather_and_return("values.nanmean().item()"),
        ],
        "Which line drops the fractions, or rounds to a whole number?": [
            gather_and_return("values.trunc().mean().item()"),
            gather_and_return("values.mean().trunc().item()"),
        ],
    },
    errors={
        "division by zero": "By which number do you divide? Ranks are counted from 0.",
        "'NoneType' object": "all_reduce changes its tensor and returns None. What holds the sum?",
        "no len()": "value is one number. dist.get_world_size() returns how many ranks there are.",
        "not iterable": "value is one number, this rank's own. The other ranks have their own.",
    },
    on_pass="every rank returns the same mean of all, nan included, at 1 to 4 ranks",
)
