"""Compute the loss that one process would print: the mean over the rows of all ranks.

The ranks have taken their rows of a batch, one more and another less, and each has the mean loss of
its own. Your function is called in every step, between forward and `backward`, on all ranks. It
returns the mean over all rows, the same number on each rank. A rank may be without rows, but never
all of them; its loss, the mean of nothing, is nan.

The number is only to be printed: it does not hold the graph of the loss in memory. `loss` itself
stays as it is, for `backward` comes next. A call may use one collective, for each costs a trip.
"""

import math
import time
from operator import mul
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words
from ddp_workbook.exercises.judging.single_number import near, number_in

HINTS = [
    "Ranks with more rows must count for more. Which two numbers of each rank would you need, to "
    "work out the mean by hand?",
    "A mean times its rows is a sum again. Two sums over the ranks, but one collective: how many "
    "numbers fit into a tensor?",
    "Where there are no rows, the sum of their losses is 0, and not nan times 0. The tensor has "
    "this rank's sum and its rows; what is their quotient, after the all_reduce?",
]
FOR_ERRORS = {
    "expected Tensor as element": "stack takes tensors. Which of your numbers is none yet?",
    "zero-dimensional": "cat needs a dimension to lay tensors behind each other. Have they one?",
    "Invalid function argument": "A collective takes a tensor. Who makes one of this number?",
    "different dtypes": "Which dtype has your tensor on a rank without rows?",
    "division by zero": "A rank may be without rows. Who divides by its rows alone?",
}
SIZES = (1, 2, 3, 4)
PAUSE = 0.05  # seconds that the others come later than rank 0: what is not waited for, shows
# Of ranks 0 to 3. Sum, mean of means, own and right value differ at every size.
MEANS, ROWS = [1.25, 2.5, 4.0, 0.5], [5, 2, 7, 6]
MET = "A collective has run: who waits for it, and who uses its result?"


def global_loss(loss: Tensor, rows: int) -> float:
    """Mean over the rows of all ranks, from this rank's mean `loss` [] over its `rows` rows."""
    ### BEGIN SOLUTION
    total = loss.item() * rows if rows else 0.0  # nan * 0 is nan; an int 0 makes an int64 tensor
    totals = torch.tensor([total, rows])
    dist.all_reduce(totals)  # two sums in one trip
    return (totals[0] / totals[1]).item()
    ### END SOLUTION


def rows_of(call: int, size: int) -> list[int]:
    """Rows of each rank; in the second call the last of several ranks has none."""
    return [*ROWS[: size - 1], 0] if call and size > 1 else ROWS[:size]


def two_calls(global_loss: Any, item: tuple[int, int]) -> list[dict]:
    """In a rank: for each of two calls, what came back, and how it left the loss and its graph."""
    (rank, size), calls = item, []
    time.sleep(PAUSE if rank else 0)
    for rows in (rows_of(0, size)[rank], rows_of(1, size)[rank]):
        weight = torch.ones((), requires_grad=True)
        loss = (weight * torch.linspace(0, 2 * MEANS[rank], rows)).mean()
        answer = global_loss(loss, rows)
        seen = {"words": in_words(answer), "graph": getattr(answer, "requires_grad", False)}
        seen |= {"value": number_in(answer), "loss": loss.item()}
        calls.append(seen | {"gradient": gradient(loss, weight)})
    time.sleep(2 * PAUSE if size > 1 and not rank else 0)
    return calls


def gradient(loss: Tensor, weight: Tensor) -> float | str:
    """What backward gives for the weight: the mean of the rows, for loss is weight times that."""
    try:
        loss.backward()
        return weight.grad.item()
    except (RuntimeError, AttributeError) as error:
        return f"{type(error).__name__}: {str(error).partition('. ')[0]}"


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare with the mean over all rows; then look at the loss, its graph, and the wire."""
    for size in sizes:
        answers, wire = attempt_on_ranks(attempt, two_calls, each=[(r, size) for r in range(size)])
        for call in range(2):
            seen, rows = [answer[call] for answer in answers], rows_of(call, size)
            for rank in range(size):
                ops = set(wire.loc[wire["rank"] == rank, "op"])
                compare_number(rank, [one["value"] for one in seen], rows, ops, seen[rank]["words"])
            for rank in range(size):
                compare_rest(rank, seen[rank], rows)
        for rank in range(size):
            compare_calls(rank, wire.loc[wire["rank"] == rank, "op"].tolist())
    return (
        "the mean over the rows of all ranks, with one collective, at 1 to 4 ranks of 0 to 7 rows"
    )


def called(rows: list[int]) -> str:
    """The arguments of all ranks in words."""
    held = [f"{mean if n else 'nan'}, {n}" for mean, n in zip(MEANS, rows, strict=False)]
    return "; ".join(f"global_loss({one}) on rank {rank}" for rank, one in enumerate(held))


def compare_number(rank: int, values: list, rows: list[int], ops: set[str], words: str) -> None:
    """Raise NotYet if the number of this rank is not the mean over all rows."""
    mean = sum(map(mul, MEANS, rows)) / sum(rows)
    if not near(values[rank], mean):
        raise NotYet(
            called(rows),
            f"{words} on rank {rank}",
            f"{mean:.6g} on every rank, the mean over {sum(rows)} rows",
            look_at(rank, values, rows, ops),
        )


def look_at(rank: int, values: list, rows: list[int], ops: set[str]) -> str:
    """The thought behind a wrong number."""
    value, size, means = values[rank], len(rows), MEANS[: len(rows)]
    total = sum(map(mul, means, rows))
    if value is None:
        return "One number is to come back, on every rank, on every way through the function."
    if math.isnan(value):
        return "A rank without rows has the loss nan. What becomes of a sum with nan in it?"
    if ops & {"reduce", "gather"} and rank:
        return "After reduce or gather one rank alone has the result. How do the others get it?"
    if len(set(values)) == 1 < size and value in means:
        owner = means.index(value)
        return f"This is rank {owner}'s loss, on every rank. Where are the rows of the others?"
    typical = {
        "This is the rank's own loss. " + (MET if ops else "Nothing was sent."): means[rank],
        "This is the mean of the ranks' means. Has each rank as many rows?": sum(means) / size,
        "This is the sum over the rows of all ranks. What makes it a mean?": total,
        "The sum over all rows was divided by the number of ranks.": total / size,
        "The sum over all rows was divided by this rank's rows.": total / (rows[rank] or 1),
        "These are the ranks' means, added up. How often does each count?": sum(means),
        "The sum of the ranks' means, by all rows: is a mean a sum?": sum(means) / sum(rows),
    }
    thoughts = [thought for thought, wrong in typical.items() if near(value, wrong)]
    return [*thoughts, "Which rows are in this number, and how often does each count?"][0]


def compare_rest(rank: int, seen: dict, rows: list[int]) -> None:
    """Raise NotYet if the number holds the graph, or if loss or its graph has changed."""
    mean = MEANS[rank] if rows[rank] else math.nan
    if seen["graph"]:
        raise NotYet(
            called(rows),
            f"a tensor that requires grad, on rank {rank}",
            "a number: a float, or a tensor that has left the graph",
            "Whoever keeps this value for a plot keeps the graph of its step in memory, too.",
        )
    if not near(seen["loss"], mean):
        raise NotYet(
            called(rows),
            f"the right number, but loss itself is {seen['loss']:g} on rank {rank} afterwards",
            f"loss is {mean:g} there, as before",
            "Which line writes into loss, or into its memory, which detach() and data share?",
        )
    if rows[rank] and not near(seen["gradient"], mean):
        raise NotYet(
            f"{called(rows)}; then loss.backward()",
            f"{seen['gradient']} on rank {rank}",
            f"{mean:g} as the gradient of the weight, as it is without your function",
            "Which line uses up, changes or cuts off the graph of loss? Its caller needs it.",
        )


def compare_calls(rank: int, ops: list[str]) -> None:
    """Raise NotYet if two calls of the function made more than two collectives."""
    if len(ops) > 2:
        raise NotYet(
            "global_loss, twice",
            f"the right numbers, after {len(ops)} collectives on rank {rank}: {', '.join(ops)}",
            "two collectives, one for each call: a trip costs the same for one number and for two",
            "Which numbers could travel in the same tensor?",
        )
