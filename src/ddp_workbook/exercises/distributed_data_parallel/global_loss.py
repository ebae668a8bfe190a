"""Compute the loss that one process would print: the mean over the rows of all ranks.

Each rank has its own rows of a batch, not always the same number, and has computed the mean loss
over them. Your function is called on all ranks in every step, between forward and `backward`. It
returns the mean over all rows, the same number on every rank.

- A rank may have no rows; its loss, the mean of nothing, is nan. At least one rank has rows.
- If a rank that has rows has the loss nan, the result is nan, too.
- `loss` has the same dtype on all ranks, which may be bfloat16.
- The number is only for printing: keep nothing that holds the graph of `loss` in memory.
- Leave `loss` and its graph as they are, because `backward` comes next.
- Use one collective at most, because each one costs a round trip.
"""

import math
import weakref
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Edit, Pattern, body, edit
from ddp_workbook.judging.equality import number_in

MINUTES = 12
HINTS = [
    "Ranks with more rows must count for more. Which two numbers of each rank would you need, to "
    "work out the mean by hand?",
    "A mean times its rows is a sum again. Two sums over the ranks, but one collective: how many "
    "numbers fit into a tensor, and in which dtype?",
    "nan times 0 is nan, so a rank without rows needs a branch for its sum. It must still take "
    "part in the collective.",
]


def global_loss(loss: Tensor, rows: int) -> float:
    """Mean over the rows of all ranks, from this rank's mean `loss` [] over its `rows` rows."""
    ### BEGIN SOLUTION
    total = loss.item() * rows if rows else 0.0  # nan * 0 is nan; an int 0 makes an int64 tensor
    totals = torch.tensor([total, rows], device=loss.device)  # nccl needs it on the GPU
    dist.all_reduce(totals)  # two sums in one trip
    return (totals[0] / totals[1]).item()
    ### END SOLUTION


class RankLoss(NamedTuple):
    """What one rank has: the mean loss of its rows, and their number."""

    mean: float
    rows: int
    dtype: torch.dtype = torch.float32


def calls(size: int) -> list[list[RankLoss]]:
    """Unequal rows; the last of several ranks without any; bfloat16; and a loss that is nan."""
    bfloat16, nan = torch.bfloat16, math.nan
    no_rows = RankLoss(nan, 0) if size > 1 else RankLoss(0.753, 6)
    cases = [
        [RankLoss(1.273, 5), RankLoss(-2.518, 2), RankLoss(4.036, 7), RankLoss(0.547, 6)],
        [*[RankLoss(-3.529, 4), RankLoss(2.251, 9), RankLoss(0.254, 1)][: size - 1], no_rows],
        [
            RankLoss(mean, n, bfloat16)
            for mean, n in ((1.5, 512), (0.25, 947), (6.0, 355), (-4.0, 1045))
        ],
        [RankLoss(nan, 3), RankLoss(1.5, 4), RankLoss(-0.75, 2), RankLoss(2.0, 5)],
    ]
    return [case[:size] for case in cases]


# The weights of all calls; a graph holds the weight that it began with.
WEIGHT_REFS: list[weakref.ref] = []


def make_args(case: list[RankLoss], rank: int) -> tuple[Tensor, int]:
    """The arguments of a call: loss is a weight of 1, times the mean of the rows."""
    mean, rows, dtype = case[rank]
    weight = torch.ones((), dtype=dtype, requires_grad=True)
    loss = weight * torch.tensor(mean, dtype=dtype)
    loss.weight = weight
    WEIGHT_REFS.append(weakref.ref(weight))
    return loss, rows


def observe(answer: Any, loss: Tensor, rows: int) -> dict:
    """The number, and how the call has left the graph of loss, and the graphs before it."""
    number = number_in(answer)
    return {
        "mean over all rows": answer if number is None else number,
        "the result requires grad": getattr(answer, "requires_grad", False),
        "gradient of loss.backward()": gradient(loss),
        "earlier graphs in memory": sum(weight() is not None for weight in WEIGHT_REFS[:-1]),
    }


def gradient(loss: Tensor) -> float | str:
    """What backward gives for the weight: the mean of the rows."""
    try:
        loss.backward()
        return loss.weight.grad.item()
    except (RuntimeError, AttributeError) as error:
        return f"{type(error).__name__}: {str(error).partition('. ')[0]}"


def expected(case: list[RankLoss]) -> float:
    """The mean over all rows."""
    return sum(own.mean * own.rows for own in case if own.rows) / sum(own.rows for own in case)


def other_sums(total: str, rows: str = "rows", result: str = "totals[0] / totals[1]") -> Edit:
    """A mistake in what is added up, and in what is made of the sums."""
    return edit(
        "loss.item() * rows if rows else 0.0",
        total,
        "[total, rows]",
        f"[total, {rows}]",
        "(totals[0] / totals[1])",
        f"({result})",
    )


SUM = "loss.item() * rows if rows else 0.0"
RESULT = "(totals[0] / totals[1]).item()"
MEAN = "loss.item() if rows else 0.0"
CHECK = DistributedCheck(
    cases=calls,
    call_text=lambda case: "; ".join(
        f"global_loss({own.mean}{' (bfloat16)' if own.dtype == torch.bfloat16 else ''}, "
        f"{own.rows}) on rank {rank}"
        for rank, own in enumerate(case)
    ),
    make_args=make_args,
    observe=observe,
    unchanged_hint="Which line writes into loss, or into its memory, which detach() and data "
    "share?",
    compare={
        "the result requires grad": Comparison(
            "A program that keeps this value for a plot also keeps the graph of its step in "
            "memory.",
            False,
        ),
        "gradient of loss.backward()": Comparison(
            "Which line changes the graph of loss? Its caller needs it.",
            lambda case, rank: case[rank].mean,
        ),
        "mean over all rows": Comparison(
            "Which rows are in this number, and how often does each count?", expected
        ),
        "earlier graphs in memory": Comparison(
            "What does your function keep from call to call? A tensor that is kept keeps the graph "
            "that made it.",
            0,
        ),
    },
    mistakes={
        "This is rank {rank}'s own loss. How does it get to know the others, and into which tensor "
        "does a collective write?": [body("return loss.item()"), edit(RESULT, "loss.item()")],
        "This is rank 0's loss, on every rank. Where are the rows of the others?": edit(
            "dist.all_reduce(totals)", "dist.broadcast(totals, 0)"
        ),
        "The ranks' means were added up. How much should each of them count?": [
            other_sums("loss.item()", "1"),
            other_sums(MEAN, "float(rows > 0)"),
            other_sums(MEAN, result="totals[0]"),
            other_sums(MEAN),
        ],
        "A rank without rows has the loss nan. What is nan times 0, and what becomes of a sum with "
        "nan in it?": other_sums("loss.item() * rows"),
        "A rank that has rows has the loss nan here: its training is broken, and the number should "
        "show it. Which line hides the nan?": [
            other_sums("loss.item() * rows if loss == loss else 0.0", row_count)
            for row_count in ("rows", "rows if loss == loss else 0")
        ],
        "This is the sum over the rows of all ranks, but not divided by their number. Over which "
        "rows is the mean?": [
            other_sums(SUM, result=result)
            for result in (
                "totals[0]",
                "totals[0] / dist.get_world_size()",
                "totals[0] / (rows or float('nan'))",
            )
        ],
        "The sums over the rows have lost their fractions. Which dtype does your tensor have?": (
            edit("device=loss.device)", "device=loss.device).long()")
        ),
        "This is the mean, rounded. Which line takes the other digits away?": [
            edit(RESULT, f"round({RESULT}, {digits})") for digits in range(5)
        ],
        "Which line uses up or cuts off the graph of loss? Its caller needs it.": Pattern(
            lambda obs: isinstance(obs.value, str), "gradient of loss.backward()"
        ),
        "It is nearly right, and the losses are bfloat16 here. Which of your numbers are "
        "bfloat16, too?": Pattern(
            lambda obs: (
                obs.case[0].dtype == torch.bfloat16
                and math.isclose(obs.value, obs.expected, rel_tol=0.05)
            ),
            "mean over all rows",
        ),
    },
    max_collectives=1,
    errors={
        "too many collectives": "Each collective costs a round trip. Which numbers could travel in "
        "the same tensor?",
        "expected Tensor as element": "stack takes tensors. Which of your numbers is not a "
        "tensor yet?",
        "different dtypes": "Which dtype does your tensor have on a rank without rows?",
        "division by zero": "A rank may have no rows. Which line divides by the rows of this "
        "rank alone?",
    },
    on_pass="the mean over the rows of all ranks, with one collective, at 1 to 4 ranks of 0 to "
    "1045 rows",
)
