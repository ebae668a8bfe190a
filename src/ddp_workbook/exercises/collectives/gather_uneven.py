"""Give every rank the tensors of all ranks, in rank order, although their lengths differ.

Your function is called on all ranks, each with its own tensor. The tensors have one dimension or
more, and the same dtype: float32, float64, bfloat16 or int64. Only the first dimension, the length,
may differ, and it may be 0. Return a list on every rank: entry r is rank r's tensor, with its
length, shape and dtype.

- Every number may be data: 0, nan, an infinity, the smallest integer.
- Use at most two collectives per call, for any number of ranks, and no send or recv.
- From each rank, receive at most as many bytes as the longest tensor has, plus 64.
- Leave `tensor` unchanged. A later call must not change what an earlier one has returned.
- All ranks must pass tensors of the same size to a collective. With other sizes, gloo aborts the
  process, or gives wrong numbers without an error.
- Tensors in a collective must be contiguous; `tensor` may be a view that is not.
"""

import math
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import (
    Comparison,
    DistributedCheck,
    Observation,
    Pattern,
    at_most,
    body,
    edit,
)
from ddp_workbook.judging.equality import values_equal

MINUTES = 20
HINTS = [
    "all_gather takes tensors of one size. How could you give yours the same size? What does every "
    "rank have to know for that, and how can it find out?",
    "First gather the lengths. Then every rank makes a tensor as long as the longest, with its own "
    "other dimensions and dtype, and copies its own rows to the beginning.",
    "After the second all_gather, every tensor still has its padding, and you know all lengths. "
    "Which rows of tensor r are rank r's?",
]
OVERHEAD_BYTES = 64  # bytes from each rank


def gather_uneven(tensor: Tensor) -> list[Tensor]:
    """The tensors of all ranks in rank order; they differ in dimension 0 of `tensor` [n, ...]."""
    ### BEGIN SOLUTION
    length = torch.tensor(len(tensor), device=tensor.device)
    lengths = [torch.empty_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    padded = tensor.new_zeros(max(lengths).item(), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    everyone = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(everyone, padded)
    return [one[:rows] for one, rows in zip(everyone, lengths, strict=True)]
    ### END SOLUTION


class Rows(NamedTuple):
    """The lengths on ranks 0, 1, ..., the other dimensions, the dtype, and the first number."""

    lengths: list[int]
    rest: tuple[int, ...]
    dtype: torch.dtype
    first: float
    contiguous: bool = False


CASES = [
    Rows([2, 4, 1, 3], (2,), torch.float64, -3.1, contiguous=True),
    Rows([2, 4, 2, 3], (2,), torch.float64, 100.1),  # as long as before when padded
    Rows([150, 40, 7, 90], (), torch.float32, -20.3),
    Rows([0, 0, 0, 0], (3, 2), torch.float32, 1),
    Rows([259, 3, 0, 80], (), torch.bfloat16, 1),  # a length that this dtype does not hold
    Rows([0, 2, 5, 3], (2,), torch.int64, 10**8 + 1),
]


def cases(size: int) -> list[Rows]:
    """The calls at this world size."""
    return [case._replace(lengths=case.lengths[:size]) for case in CASES]


def tensor_of(case: Rows, rank: int) -> Tensor:
    """A rank's tensor: it begins in the middle of its memory, and ends like a padding."""
    rows, first = case.lengths[rank] + 1, case.first * (rank + 1)
    numbers = torch.arange(rows * torch.Size(case.rest).numel(), dtype=case.dtype) + first
    numbers = numbers.reshape(rows, *case.rest)
    numbers[-1] = padding(case.dtype)[rank]
    if case.contiguous or rows == 1:  # of an empty one, `contiguous` would keep the strides
        return numbers[1:]
    return torch.stack([numbers, numbers], -1)[1:, ..., 0]


def padding(dtype: torch.dtype) -> tuple[float, ...]:
    """Numbers that someone may pad with; each is in the last row of one rank."""
    if dtype.is_floating_point:
        return 0, math.nan, -math.inf, math.inf
    return 0, torch.iinfo(dtype).min, torch.iinfo(dtype).max, -1


def matches_but_last_row(obs: Observation) -> bool:
    """Whether each tensor is right, or right but for its last row."""
    return all(
        values_equal(value, expected) or values_equal(value, expected[:-1])
        for value, expected in zip(obs.value, obs.expected, strict=True)
    )


def call_text(case: Rows) -> str:
    """The call, and the shapes on the ranks."""
    shapes = (f"{tuple(tensor_of(case, r).shape)} on rank {r}" for r in range(len(case.lengths)))
    return f"gather_uneven(tensor), where tensor was {case.dtype} of shape {', '.join(shapes)}"


SIZES_HINT = "One collective got tensors of different sizes. Which size has each, and who knows it?"
PADDING_HINT = "To which length do you pad here, and which other dimensions does the result have?"
OWN_LENGTH = "torch.tensor(len(tensor), device=tensor.device)"
GATHER = "dist.all_gather(lengths, length)"
FULL_LIST = "[torch.empty_like(padded) for _ in lengths]"
GATHER_ALL = "dist.all_gather(everyone, padded)"
RESULT = "[one[:rows] for one, rows in zip(everyone, lengths, strict=True)]"
CHECK = DistributedCheck(
    cases=cases,
    call_text=call_text,
    make_args=lambda case, rank: (tensor_of(case, rank),),
    compare={
        "form": "Does every path through the function return one tensor for each rank?",
        "length of the list": Comparison(
            "Does every path through the function return one tensor for each rank?",
            lambda case: len(case.lengths),
            lambda obs: len(obs.actual),
        ),
        "tensors": Comparison(
            "Follow one row of this tensor: where is it in each tensor that you send, and where in "
            "each that you receive?",
            lambda case: [tensor_of(case, rank) for rank in range(len(case.lengths))],
            actual="number {part} of the list is {value} {where}",
        ),
        "messages": Comparison(
            "The messages differ in length, and so do their tensors. What makes tensors of one "
            "length, so that one collective moves them all?",
            [],
            lambda obs: [op for op in ("send", "recv") if op in obs.ops],
            required="at most two collectives, and no send or recv",
        ),
        "bytes received": at_most(
            "To which length do you pad, and which dtype do you send? Pickled objects have more "
            "bytes than tensors.",
            lambda case: (
                len(case.lengths)
                * (
                    max(tensor_of(case, r).nbytes for r, _ in enumerate(case.lengths))
                    + OVERHEAD_BYTES
                )
            ),
            lambda obs: sum(row["received"] for row in obs.communication),
            required="{expected} at most: from each rank what the longest has, plus "
            f"{OVERHEAD_BYTES}",
        ),
    },
    mistakes={
        "This is rank {rank}'s own tensor. How can the others' arrive?": [
            body("return [tensor for _ in range(dist.get_world_size())]"),
            edit(RESULT, "[tensor for _ in lengths]"),
        ],
        "Every entry begins like the last rank's tensor. How many tensors does `[x] * n` make?": (
            edit(FULL_LIST, "[torch.empty_like(padded)] * len(lengths)")
        ),
        "In which dtype are the numbers sent, and in which do you return them?": [
            edit("tensor.new_zeros", "torch.zeros"),
            edit("tensor.new_zeros", "torch.zeros", "one[:rows]", "one[:rows].to(tensor.dtype)"),
            edit("one[:rows]", "one[:rows].double()"),
        ],
        "The numbers are right, the shape is not. Where did you lose its other dimensions?": edit(
            "one[:rows]", "one[:rows].flatten()"
        ),
        "The length is sent in the tensor's own dtype. Which whole numbers can that dtype hold?": (
            edit(OWN_LENGTH, "torch.tensor(len(tensor), dtype=tensor.dtype)")
            + edit(GATHER, f"{GATHER}\n    lengths = [one.long() for one in lengths]")
        ),
        "It has as many rows as rank {rank}'s own tensor. Whose length do you cut it to?": edit(
            "one[:rows]", "one[: len(tensor)]"
        ),
        "It has more rows than the original tensor. What comes after those rows?": edit(
            RESULT, "everyone"
        ),
        "Rows are missing at its end. What decides where you cut it?": [
            edit("one[:rows]", "one[: max(rows - 1, 0)]"),
            edit("max(lengths)", "min(lengths)", "= tensor\n", "= tensor[: len(padded)]\n"),
        ],
        "Negative numbers have become 0. Which is larger, a negative number or the padding's 0?": (
            edit(FULL_LIST, "padded.new_zeros(len(lengths), *padded.shape)")
            + edit(GATHER_ALL, "everyone[dist.get_rank()] = padded\n    " + GATHER_ALL)
            + edit(GATHER_ALL, "dist.all_reduce(everyone, dist.ReduceOp.MAX)")
        ),
        "These are the right tensors in another order. What decides which one is first?": Pattern(
            lambda obs: all(
                any(values_equal(value, expected) for value in obs.value)
                for expected in obs.expected
            ),
            "tensors",
        ),
        "A number that you pad with may be data as well. What else tells you where a "
        "tensor ends?": Pattern(matches_but_last_row, "tensors"),
    },
    max_collectives=2,
    unchanged_hint="Which of your lines writes into it?",
    errors={
        "too many collectives": "Which of these can you do without? How many would it take with "
        "100 ranks?",
        "expanded size": PADDING_HINT,
        "number of sizes": PADDING_HINT,
        "invalid tensor size": SIZES_HINT,
        "SIGABRT": SIZES_HINT,
    },
    on_pass="tensors of 0 to 259 rows at 1 to 4 ranks: two collectives per call",
)
