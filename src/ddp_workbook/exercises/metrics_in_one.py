"""Compute mean loss and accuracy over the samples of all ranks, with one collective.

Each rank has evaluated samples of its own, and has counted: `loss_sum`, the sum of their losses,
`correct`, how many of them it got right, and `count`, how many they are. Your function is called
once on all ranks. It returns, on every rank, the same two numbers: the mean loss of all samples,
and the part of all samples that is correct, from 0 to 1. A rank may be without samples, and has
three zeros then, but never all of them.

- A call makes one collective, whatever the number of ranks.
- Both numbers are right to 12 digits, also where the ranks have counted very far. float32 cannot
  count so: it has all whole numbers up to 2 ** 24 = 16,777,216, and beyond that not even all odd
  ones. 20,000,001 becomes 20,000,000.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words
from ddp_workbook.exercises.judging.single_number import number_in

HINTS = [
    "A mean of means would be wrong, for ranks differ in their count. Which sums over the ranks do "
    "you need, and how many tensors must they be?",
    "One tensor holds three numbers as well as one, if they have one dtype. Which dtype has "
    "fractions, and all whole numbers up to 2 ** 53?",
    "torch.tensor makes float32 of Python's floats, unless you say dtype=torch.float64. Add up the "
    "tensor over the ranks, and only then divide: two quotients, by the same number.",
]
FOR_ERRORS = {
    "division by zero": "A rank may be without samples. Which count divides, and when?",
    "Invalid function argument": "A collective takes a tensor. Who makes one of these numbers?",
    "zero-dimensional": "cat needs a dimension to lay tensors behind each other. Have they one?",
}
SIZES = (1, 2, 3, 4)
PAUSE = 0.03  # seconds that the others come later than rank 0: what is not waited for, shows
# What ranks 0 to 3 have: float32 is exact for the first, and for none of the second.
FEW = [(6.5, 3, 8), (5.25, 17, 24), (30.25, 5, 32), (22.5, 33, 64)]
MANY = [
    (30_123_456.7, 20_000_001, 33_554_433),
    (9_876_543.21, 17_000_003, 20_000_005),
    (70_000_000.9, 18_765_433, 41_000_003),
    (16_000_000.3, 30_000_001, 37_777_777),
]
OWN = "These are the rank's own numbers. "
MEETING = "Who sends them, who waits for what arrives, and who uses it?"


def metrics_in_one(loss_sum: float, correct: int, count: int) -> tuple[float, float]:
    """Mean loss and accuracy (0 to 1) over the samples of all ranks, from this rank's sums."""
    ### BEGIN SOLUTION
    sums = torch.tensor([loss_sum, correct, count], dtype=torch.float64)  # exact up to 2 ** 53
    dist.all_reduce(sums)
    loss_sum, correct, count = sums.tolist()
    return loss_sum / count, correct / count
    ### END SOLUTION


def cases(size: int) -> list[list[tuple[float, int, int]]]:
    """What each rank has, in each call; in the last one the last of several ranks has nothing."""
    last = [(0.0, 0, 0)] if size > 1 else FEW[:1]
    return [FEW[:size], MANY[:size], [*FEW[: size - 1], *last]]


def each_case(metrics_in_one: Callable, item: tuple[int, int]) -> list[dict]:
    """In a rank, for each case: what came back, in words and as two numbers."""
    (rank, size), answers = item, []
    time.sleep(PAUSE if rank else 0)
    for case in cases(size):
        try:
            answers.append(metrics_in_one(*case[rank]))
        except ZeroDivisionError:  # the last case; perhaps the rank has never had more than its own
            came = numbers_in(answers[0]) if answers else None
            if came and near(came, quotients(FEW[rank], FEW[rank][2]), 1e-4):
                raise wrong(rank, FEW[:size], in_words(answers[0]), OWN + MEETING) from None
            raise
    time.sleep(2 * PAUSE if size > 1 and not rank else 0)
    return [{"words": in_words(one), "values": numbers_in(one)} for one in answers]


def numbers_in(answer: Any) -> list[float] | None:
    """Two numbers, or tensors of one element; None for all else."""
    if isinstance(answer, Tensor) and answer.dim():
        answer = list(answer)
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return None
    values = [number_in(one) for one in answer]
    return None if None in values else values


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare both numbers with those of one process, then count what went over the wire."""
    for size in sizes:
        each = [(rank, size) for rank in range(size)]
        answers, wire = attempt_on_ranks(attempt, each_case, each=each)
        for number, case in enumerate(cases(size)):
            values = [answer[number]["values"] for answer in answers]
            for rank, answer in enumerate(answers):
                ops = set(wire.loc[wire["rank"] == rank, "op"])
                compare_answer(rank, case, values, answer[number]["words"], ops)
        for rank in range(size):
            compare_calls(rank, len(cases(size)), wire[wire["rank"] == rank])
    return "12 digits at 1 to 4 ranks, of 0 to 41,000,003 samples each, with one collective"


def compare_answer(rank: int, case: list[tuple], values: list, words: str, ops: set[str]) -> None:
    """Raise NotYet if the two numbers of this rank are not those over all samples."""
    loss_sum, correct, count = map(sum, zip(*case, strict=True))
    value, right = values[rank], [loss_sum / count, correct / count]
    if value is None or not near(value, right, 1e-12):
        if value and near(value, right, 1e-4):  # in_words cuts the digits that differ
            words = f"({value[0]:.14g}, {value[1]:.14g})"
        raise wrong(rank, case, words, look_at(rank, case, values, ops))


def wrong(rank: int, case: list[tuple], words: str, look: str) -> NotYet:
    """The four sentences about what came back in this case."""
    held = [f"({one:,}, {two:,}, {n:,}) on rank {r}" for r, (one, two, n) in enumerate(case)]
    loss_sum, correct, count = map(sum, zip(*case, strict=True))
    return NotYet(
        f"metrics_in_one(loss_sum, correct, count), with {', '.join(held)}",
        f"{words} on rank {rank}",
        f"({loss_sum / count:.14g}, {correct / count:.14g}) on every rank, of {count:,} samples",
        look,
    )


def near(values: list[float], others: list[float], tolerance: float) -> bool:
    """Both pairs equal, but for a relative error."""
    return all(map(partial(math.isclose, rel_tol=tolerance), values, others))


def look_at(rank: int, case: list[tuple], values: list, ops: set[str]) -> str:
    """The thought behind two wrong numbers."""
    value, size, own = values[rank], len(case), case[rank]
    if value is None:
        return "A pair of numbers is to come back, on every rank: mean loss, then accuracy."
    *sums, count = map(sum, zip(*case, strict=True))
    right, means = quotients(sums, count), [quotients(one, one[2]) for one in case]
    if near(value, right, 1e-4):
        return "Nearly right. Which dtype has each tensor? Which of these numbers does it not have?"
    if near(value, right[::-1], 1e-4):
        return "The right numbers, one in the place of the other. Which comes first?"
    if near(value, [right[0], 100 * right[1]], 1e-4):
        return "The accuracy is a part of 1 here, and no percentage."
    if ops & {"reduce", "gather"} and rank:
        return "After reduce or gather one rank alone has the result. How do the others get it?"
    if any(map(math.isnan, value)):
        return "nan is 0 / 0, or inf / inf. Who divides by its own count, or is a dtype too small?"
    if size > 1 and all(one and near(one, means[0], 1e-4) for one in values):
        return "This is rank 0's own, on every rank. Where are the samples of the others?"
    added, largest = [
        [f(n) for n in zip(*of, strict=True)] for f, of in ((sum, means), (max, case))
    ]
    cut = [sum(int(one[0]) for one in case), sums[1]]
    typical = [
        (quotients(cut, count), "Fractions of the losses are gone. Which numbers has the dtype?"),
        (means[rank], OWN + (MEETING if ops else "Nothing was sent.")),
        (
            quotients(added, size),
            "The mean of the ranks' own means. Has each rank as many samples?",
        ),
        (sums, "Sums over all ranks. By what must they be divided?"),
        (quotients(sums, size), "Sums, by the number of ranks. By what must they be divided?"),
        (quotients(sums, own[2]), "The sums over all ranks were divided by this rank's own count."),
        (quotients(added, count), "The ranks' own means, by the samples. Is a mean a sum?"),
        (added, "The ranks' own means, added up. How often does each of them count?"),
        (quotients(largest, largest[2]), "The largest of the ranks. How are numbers combined?"),
    ]
    thoughts = [thought for numbers, thought in typical if near(value, numbers, 1e-4)]
    return [*thoughts, "Whose samples are in each number, and by how many was it divided?"][0]


def quotients(sums: Any, count: int) -> list[float]:
    """The first two of the sums by a count; of no samples there is none."""
    return [one / count if count else 0.0 for one in sums[:2]]


def compare_calls(rank: int, calls: int, ops: Any) -> None:
    """Raise NotYet if this rank made more collectives than calls."""
    if len(ops) > calls:
        look = "Which numbers could travel in the same tensor?"
        if "uint8" in set(ops["dtype"]):
            look = "Objects travel as pickled bytes. How many collectives does that take, and why?"
        each = ", ".join(f"{op} {n} times" for op, n in ops["op"].value_counts(sort=False).items())
        raise NotYet(
            f"metrics_in_one, {calls} times",
            f"the right numbers, after {len(ops)} operations on rank {rank}: {each}",
            f"{calls}, one for each call: a trip costs the same for one number and for three",
            look,
        )
