"""Compute the mean loss and the accuracy over the samples of all ranks, with one collective.

Each rank has evaluated samples of its own: `loss_sum` is the sum of their losses, `correct` is how
many of them were right, and `count` is how many there were. Your function is called once on every
rank, and returns the same two floats everywhere: the mean loss over the samples of all ranks, and
the fraction of them that were right (0 to 1).

- Use at most one collective per call, for any number of ranks.
- Both results must be right to 12 digits, for tiny losses and for many millions of samples. float32
  does not suffice: above 2 ** 24 it skips odd numbers, so 20,000,001 becomes 20,000,000.
- A rank may have no samples; then its three numbers are 0. At least one rank has some.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ddp_workbook.judging import Comparison, DistributedCheck, Pattern, body, edit
from ddp_workbook.judging.equality import is_number

MINUTES = 12
HINTS = [
    "A mean of the ranks' means would be wrong, because their counts differ. Which sums over the "
    "ranks do you need, and into how many tensors must you put them?",
    "One tensor can hold all three numbers if they share a dtype. Which dtype has fractions, and "
    "all whole numbers up to 2 ** 53?",
    "torch.tensor makes float32 from Python's floats unless you pass a dtype. And do you divide "
    "before the collective, or after it?",
]
# What ranks 0 to 3 have evaluated. The first losses have digits that float32 and billionths lack.
FEW = [(0.00123456789012, 3, 8), (5.25012345678, 17, 24), (-3.75, 5, 32), (22.625, 33, 64)]
MANY = [
    (30_123_456_789.7, 20_000_001, 33_554_433),
    (9_876_543.21, 17_000_003, 20_000_005),
    (70_000_000.9, 18_765_433, 41_000_003),
    (16_000_000.3, 30_000_001, 37_777_777),
]
NO_SAMPLES = (0.0, 0, 0)
Metrics = list[tuple[float, int, int]]


def metrics_in_one(loss_sum: float, correct: int, count: int) -> tuple[float, float]:
    """Mean loss and accuracy (0 to 1) over the samples of all ranks, from this rank's sums."""
    ### BEGIN SOLUTION
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)  # exact up to 2 ** 53
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
    ### END SOLUTION


def cases(size: int) -> list[Metrics]:
    """Four calls; in the last two a rank has no samples, and another has diverged."""
    few, many = FEW[:size], MANY[:size]
    if size == 1:
        return [few, many, few]
    return [few, many, [NO_SAMPLES, (math.inf, 17, 24), *few[2:]], [*many[:-1], NO_SAMPLES]]


def means(case: Metrics) -> tuple[float, float]:
    """Loss and accuracy over the samples of all ranks, from Python's own sums."""
    loss_sum, correct, count = map(sum, zip(*case, strict=True))
    return loss_sum / count, correct / count


def near(tolerance: float) -> Callable[[Any, Any], bool]:
    """Returns a function: whether two pairs of numbers are equal up to this relative error."""

    def equal(actual: Any, expected: Any) -> bool:
        if not is_pair(actual) or not is_pair(expected):
            return False
        pairs = np.asarray(actual, float), np.asarray(expected, float)
        return np.allclose(*pairs, rtol=tolerance, atol=0, equal_nan=True)

    return equal


def is_pair(actual: Any) -> bool:
    """Whether it is two numbers, and no tensors."""
    return isinstance(actual, list | tuple) and len(actual) == 2 and all(map(is_number, actual))


SUMS = "loss_sum, correct, count = sums.tolist()"
MEANS = "loss_sum / count, correct / count"
OWN_MEANS = edit(
    "[loss_sum, correct, count]", "[loss_sum / (count or 1), correct / (count or 1), 1]"
)
CHECK = DistributedCheck(
    cases=cases,
    call_text=lambda case: f"the ranks had (loss_sum, correct, count) = {case}",
    make_args=lambda case, rank: case[rank],
    compare={
        "means": Comparison(
            "Whose samples are in each number, and by which count did you divide it?",
            means,
            equal=near(1e-4),
        ),
        "digits": Comparison(
            "Nearly right: the last digits are lost. Which dtype does each tensor have "
            "when you make it, and which of these numbers can it not hold?",
            means,
            equal=near(1e-12),
        ),
    },
    mistakes={
        "These are the right numbers, rounded. How many digits does the task ask for?": [
            edit(MEANS, f"round(loss_sum / count, {n}), round(correct / count, {n})")
            for n in range(1, 8)
        ],
        "Loss and accuracy are swapped. Which comes first?": edit(
            MEANS, "correct / count, loss_sum / count"
        ),
        "This accuracy is a percentage. A fraction from 0 to 1 is asked for.": edit(
            "correct / count", "100 * correct / count"
        ),
        "The fractions of the losses are gone. Which numbers can the dtype hold?": edit(
            "dtype=torch.float64)", "dtype=torch.float64).trunc()"
        ),
        "These are rank {rank}'s own numbers. How can the others' arrive, and into which tensor "
        "does a collective write?": [
            body("return loss_sum / (count or 1), correct / (count or 1)"),
            edit(SUMS, "count = count or 1"),
        ],
        "These are rank 0's numbers, on every rank. Where are the samples of the others?": edit(
            "all_reduce(sums)", "broadcast(sums, src=0)", SUMS, f"{SUMS}\n    count = count or 1"
        ),
        "Rank {rank} had no samples, and has returned zeros. Which mean do the other ranks "
        "return?": edit(SUMS, f"if count == 0:\n        return 0.0, 0.0\n    {SUMS}"),
        "This is made of the ranks' means. How much should a rank with few samples weigh against "
        "one with many?": [OWN_MEANS, OWN_MEANS + edit(MEANS, "loss_sum, correct")],
        "These are sums over all ranks. By what must they be divided, and whose samples are in "
        "them?": [
            edit(MEANS, "loss_sum, correct"),
            edit(SUMS, f"{SUMS}\n    count = dist.get_world_size()"),
            edit(SUMS, "loss_sum, correct, _ = sums.tolist()\n    count = count or 1"),
        ],
        "This comes from the largest numbers of any rank. How does your collective combine them?": (
            edit("all_reduce(sums)", "all_reduce(sums, dist.ReduceOp.MAX)")
        ),
        "The task asks for two floats. What do you return instead, and how many?": Pattern(
            lambda obs: obs.actual is not None and not is_pair(obs.actual), "means"
        ),
        "nan is what 0 / 0 gives, and inf - inf. Which rank divides by its own count?": Pattern(
            lambda obs: is_pair(obs.actual) and any(map(math.isnan, obs.actual)), "means"
        ),
    },
    max_collectives=1,
    errors={
        "too many collectives": "Which numbers could you put into one tensor, and which dtype "
        "holds them all?",
        "division by zero": "A rank may have no samples. Which count divides here, and when?",
        "infinity": "A loss may be inf. Which dtype can hold it?",
        "'NoneType' object": "A collective writes into its tensor, and returns None. Which name "
        "holds what a call returned?",
        "invalid output tensor list": "The list to gather into needs one tensor for each rank. "
        "How many ranks are there now?",
    },
    on_pass="12 digits at 1 to 4 ranks, of 0 to 41,000,003 samples each, with one collective",
)
