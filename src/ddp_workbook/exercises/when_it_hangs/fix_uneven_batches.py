"""Mend a loop that works on 1, 2 and 4 ranks, and hangs on 3.

All ranks hold the same `rows`, a tensor [n, 4], and take every W-th of them, W being the number of
ranks: rank r takes rows r, r + W, r + 2 W and so on. Each rank goes through its rows in batches of
`batch_size`. In each step the ranks add up the sums of their batches, and every rank notes the
total. Return the totals, which are the same on all ranks.

- Every row counts, once. A rank whose rows are used up adds nothing, until all are done.
- There are as many steps as the rank with the most rows needs.
- Make one collective a step, and no more.
- It must also work where there are fewer rows than ranks, and without any row: then it returns [].
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import (
    Comparison,
    DistributedCheck,
    Pattern,
    at_most,
    edit,
)

MINUTES = 10
HINTS = [
    "Write down how many rows each of 3 ranks has of 32, and how many batches of 5 that makes.",
    "Each rank makes a step for each batch of its own. In which step does one of them not come?",
    "How many steps does the rank with the most rows need? Every rank can compute that. What does "
    "a rank add in a step for which it has no rows?",
]


def fix_uneven_batches(rows: Tensor, batch_size: int) -> list[float]:
    """The total of each step over all ranks; `rows` [n, 4] is the same on all ranks."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = rows[rank::ranks]
    totals = []
    for start in range(0, -(-len(rows) // ranks), batch_size):
        total = own[start : start + batch_size].sum()
        dist.all_reduce(total)
        totals.append(total.item())
    return totals
    ### GIVEN
    # # TODO: mend this
    # own = rows[dist.get_rank() :: dist.get_world_size()]
    # totals = []
    # for batch in own.split(batch_size):
    #     total = batch.sum()
    #     dist.all_reduce(total)
    #     totals.append(total.item())
    # return totals
    ### END SOLUTION


class Rows(NamedTuple):
    """One call: so many rows, in batches of such a size."""

    number: int
    batch_size: int
    ranks: int = 4


CASES = [Rows(32, 5), Rows(10, 3), Rows(7, 1), Rows(12, 4), Rows(2, 2), Rows(0, 3), Rows(1, 8)]


def rows_of(case: Rows) -> Tensor:
    """Whole numbers, so that no order of a sum changes it."""
    return torch.arange(case.number * 4, dtype=torch.float32).reshape(-1, 4) % 11 + 1


def expected(case: Rows) -> list[float]:
    """The total of each step."""
    rows, block = rows_of(case), case.ranks * case.batch_size
    return [rows[start : start + block].sum().item() for start in range(0, case.number, block)]


STEPS = "range(0, -(-len(rows) // ranks), batch_size)"
TOTAL = "own[start : start + batch_size].sum()"
CHECK = DistributedCheck(
    cases=CASES,
    call_text="{call}, {case.number} rows",
    make_args=lambda case, rank: (rows_of(case), case.batch_size),
    compare={
        "totals": Comparison(
            "Go through the steps with pencil and paper: which rows does each rank add?", expected
        ),
        "collectives": at_most(
            "Every rank can compute the number of steps from `rows`, and the collective of a step "
            "waits for all. What is the other one for?",
            lambda case: len(expected(case)),
            lambda obs: len(obs.ops),
            "at most {expected}: one in each step",
        ),
    },
    mistakes={
        "Rows are left out. Who still has rows when the loop ends?": [
            edit("-(-len(rows) // ranks)", "len(rows) // ranks"),
            edit(STEPS, "range(0, len(rows) // ranks // batch_size * batch_size, batch_size)"),
        ],
        "There are steps in which nobody adds anything. When is the last row used up?": edit(
            STEPS, "range(0, len(rows), batch_size)"
        ),
        "Each rank notes its own sum here. Whose rows are missing in it?": edit(
            "        dist.all_reduce(total)\n", ""
        ),
        "All ranks add the same rows. Which are this rank's?": edit("rows[rank::ranks]", "rows"),
        "A rank without rows repeats its last ones. What should it add?": edit(
            TOTAL, "(own[start : start + batch_size] if start < len(own) else own[-1:]).sum()"
        ),
        "There are no rows here, so no step is needed. Who makes one all the same?": Pattern(
            lambda obs: obs.expected == [] and obs.value, "totals"
        ),
        "All steps together add up to less than all rows. Which rows are left out?": Pattern(
            lambda obs: sum(obs.value) < sum(obs.expected), "totals"
        ),
        "All steps together add up to more than all rows. Which rows are added twice?": Pattern(
            lambda obs: sum(obs.value) > sum(obs.expected), "totals"
        ),
        "All rows are there, but in other steps. Which rows are a rank's own, and how many of them "
        "does it add in a step?": Pattern(
            lambda obs: sum(obs.value) == sum(obs.expected), "totals"
        ),
    },
    unchanged_hint="Which line writes into rows?",
    on_pass="every row counts once, on 1 to 4 ranks, however the batches come out",
)
