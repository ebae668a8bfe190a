"""Give every rank the tensors of all ranks, in rank order, although their lengths differ.

Your function is called on all ranks, each with its own tensor. The tensors have the same dtype, and
one dimension or more. Only the first dimension, the length, may differ, and it may be 0. Return a
list on every rank: entry r is rank r's tensor, with its length, shape and dtype.

- Use at most two collectives per call, for any number of ranks, and no send or recv.
- From each rank, receive at most as many bytes as the longest tensor has, plus 64.
- Leave `tensor` unchanged. A later call must not change what an earlier one has returned.
- All ranks must bring tensors of the same size to a collective. With other sizes, gloo aborts the
  process, or gives wrong numbers without an error.
- Tensors in a collective must be contiguous; `tensor` may be a view that is not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import ANY, Look, OnRanks, Seen, When, in_words
from ddp_workbook.exercises.judging.same import same

MINUTES = 20
HINTS = [
    "all_gather takes tensors of one size. How could you give yours the same size? What does every "
    "rank have to know for that, and how can it find out?",
    "First gather the lengths. Then every rank makes a tensor as long as the longest, with its own "
    "other dimensions and dtype, and copies its own rows to the beginning.",
    "After the second all_gather, every tensor still has its padding, and you know all lengths. "
    "Which rows of tensor r are rank r's?",
]
FOR_ALL_ELSE = 64  # bytes from each rank


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


class Case(NamedTuple):
    """The lengths on ranks 0, 1, ..., the other dimensions, the dtype, and the first number."""

    lengths: list[int]
    rest: tuple[int, ...]
    dtype: torch.dtype
    first: float
    contiguous: bool = False


CASES = [
    Case([2, 3, 1, 4], (2,), torch.float64, -3.1, contiguous=True),
    Case([2, 3, 2, 4], (2,), torch.float64, 100.1),  # as long as before when padded
    Case([150, 40, 7, 90], (), torch.float32, -20),
    Case([0, 0, 0, 0], (3, 2), torch.float32, 1),
    Case([259, 3, 0, 80], (), torch.bfloat16, 1),  # a length that this dtype does not hold
    Case([3, 0, 5, 0], (2,), torch.int64, 10**8 + 1),
]


def cases(size: int) -> list[Case]:
    """The calls at this world size."""
    return [case._replace(lengths=case.lengths[:size]) for case in CASES]


def tensor_of(case: Case, rank: int) -> Tensor:
    """A rank's tensor: it begins in the middle of its memory, and ends with zeros."""
    rows, first = case.lengths[rank] + 1, case.first * (rank + 1)
    counted = torch.arange(rows * torch.Size(case.rest).numel(), dtype=case.dtype) + first
    counted = counted.reshape(rows, *case.rest)
    counted[-1] = 0
    if case.contiguous or rows == 1:  # of an empty one, `contiguous` would keep the strides
        return counted[1:]
    return torch.stack([counted, counted], -1)[1:, ..., 0]


def by_number(tensors: Any) -> dict[str, Any]:
    """The items of a list by their places."""
    return {f"number {n}": tensor for n, tensor in enumerate(tensors)}


def each(made: Callable[[Tensor], Tensor]) -> Callable:
    """A mistake that makes something else of each rank's tensor."""
    return lambda case: by_number(made(tensor_of(case, r)) for r in range(len(case.lengths)))


def tensor_where(holds: Callable[[Tensor, Tensor, Tensor, Seen], Any]) -> When:
    """A mistake that shows in the first wrong tensor: (it, what is right, the rank's own, seen)."""

    def fits(seen: Seen) -> bool:
        wrong = next(one for one in seen.right if not same(seen.value[one], seen.right[one]))
        value, right = seen.value[wrong], seen.right[wrong]
        own = seen.right[f"number {seen.rank}"]
        if not isinstance(value, Tensor) or value.dim() == 0:
            return False
        return bool(holds(value, right, own, seen))

    return When(fits)


def begins(one: Tensor, other: Tensor) -> bool:
    """Whether one tensor is the beginning of the other, in its values."""
    return (
        one.shape[1:] == other.shape[1:]
        and len(one) <= len(other)
        and torch.equal(one.double(), other[: len(one)].double())
    )


def own_is_whole(seen: Seen) -> bool:
    """Whether every rank has got back its own tensor as it was."""
    own = [(one, f"number {one.rank}") for one in seen.everyone]
    return all(same(one.value.get(number), one.right[number]) for one, number in own)


def zeros_are_gone(value: Any, right: Tensor) -> bool:
    """Whether this is the right tensor without its zeros, or without those at its end."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return False
    without = right[: len(value)]
    at_its_end = not right[len(value) :].any() and (not len(without) or without[-1].any())
    return torch.equal(value, right[right != 0]) or (begins(value, right) and bool(at_its_end))


def one_tensor_in_all_places(seen: Seen) -> bool:
    """Whether every entry holds the last rank's numbers, cut to one length or another."""
    last, entries = [*seen.right.values()][-1], seen.value.values()
    return len(seen.right) > 1 and all(
        isinstance(one, Tensor) and one.dim() and (begins(one, last) or begins(last, one))
        for one in entries
    )


def length_in_its_dtype(value: Tensor, right: Tensor, own: Tensor, seen: Seen) -> bool:
    """Whether the first message was one number in the tensors' own dtype."""
    first = seen.wire[0] if seen.wire else {}
    sent = f"torch.{first.get('dtype')}", first.get("bytes")
    return len(value) != len(right) and sent == (str(own.dtype), own.element_size())


def in_full(value: Any) -> str:
    """A tensor's first numbers with all digits, its shape, and its dtype."""
    if not isinstance(value, Tensor):
        return in_words(value)
    shown = ", ".join(map(str, value.flatten()[:4].tolist())) + ", …" * (value.numel() > 4)
    return f"[{shown}] of shape {tuple(value.shape)} in {value.dtype}"


def in_call(case: Case) -> str:
    """The call, and the shapes on the ranks."""
    shapes = (f"{tuple(tensor_of(case, r).shape)} on rank {r}" for r in range(len(case.lengths)))
    return f"gather_uneven(tensor), where tensor was {case.dtype} of shape {', '.join(shapes)}"


ONE_HAS_IT = {
    "After gather or reduce, only one rank has the result. How do the others get it?": When(
        lambda seen: seen.rank and {"gather", "reduce"} & {*seen.ops}
    )
}
UNLIKE = "One collective got tensors of different sizes. Which size has each, and who knows it?"
PADDED = "To which length do you pad here, and which other dimensions does the result have?"
MISTAKES = {
    **ONE_HAS_IT,
    "These are the right tensors in another order. What decides which one is first?": When(
        lambda seen: all(
            any(same(one, right) for one in seen.value.values()) for right in seen.right.values()
        )
    ),
    "This is rank {rank}'s own tensor. How can the others' arrive?": (
        lambda case, rank: by_number([tensor_of(case, rank)] * len(case.lengths))
    ),
    "Every entry begins like the last rank's tensor. How many tensors are there in `[x] * n`?": (
        When(one_tensor_in_all_places)
    ),
    "In which dtype are the numbers sent, and in which do you return them?": tensor_where(
        lambda value, right, own, seen: (
            value.shape == right.shape
            and torch.allclose(value.double(), right.double(), rtol=1e-6, atol=0.5)
        )
    ),
    "The numbers are right, the shape is not. Where did you lose its other dimensions?": (
        tensor_where(
            lambda value, right, own, seen: (
                begins(value.flatten(), right.flatten()) and value.numel() == right.numel()
            )
        )
    ),
    "The length is sent in the tensor's own dtype. Which whole numbers can that dtype hold?": (
        tensor_where(length_in_its_dtype)
    ),
    "It has more rows than the original tensor. What comes after those rows?": tensor_where(
        lambda value, right, own, seen: begins(right, value)
    ),
    "It has as many rows as rank {rank}'s own tensor. Whose length do you cut it to?": tensor_where(
        lambda value, right, own, seen: (
            begins(value, right) and len(value) == len(own) and own_is_whole(seen)
        )
    ),
    "A 0 may be data, not padding. What else tells you where a tensor ends?": tensor_where(
        lambda value, right, own, seen: all(
            map(zeros_are_gone, seen.value.values(), seen.right.values())
        )
    ),
    "Rows are missing at its end. What decides where you cut it?": tensor_where(
        lambda value, right, own, seen: begins(value, right)
    ),
    "Negative numbers have become 0. Which is larger, a negative number or the padding's 0?": each(
        lambda tensor: tensor.clamp(min=0)
    ),
    "These numbers come before the tensor in its storage. Where does a slice begin there?": each(
        lambda tensor: tensor.as_strided(tensor.shape, tensor.contiguous().stride(), 0)
    ),
    "The tensors of the first call were contiguous, these are not. What does a collective do with "
    "such a tensor?": tensor_where(
        lambda value, right, own, seen: seen.call == 1 and value.shape == right.shape
    ),
}
CHECK = OnRanks(
    cases=cases,
    called=in_call,
    given=lambda case, rank: (tensor_of(case, rank),),
    looks=[
        Look(
            right=lambda case: [ANY] * len(case.lengths),
            mistakes=ONE_HAS_IT,
            otherwise="Does every path through the function return one tensor for each rank?",
            required="a list of {size} tensors on every rank",
        ),
        Look(
            of=lambda seen: by_number(seen.came),
            right=each(lambda tensor: tensor),
            mistakes=MISTAKES,
            otherwise="Follow one row of this tensor: where is it in each tensor that you send, "
            "and where in each that you receive?",
            came="{part} of the list is {value} {where}",
            required="{right}",
            words=in_full,
        ),
        Look(
            of=lambda seen: [op for op in ("send", "recv") if op in seen.ops],
            right=[],
            otherwise="The messages differ in length, and so do their tensors. What makes "
            "tensors of one length, so that one collective moves them all?",
            came="the right list, but rank {rank} called {value}",
            required="at most two collectives, and no send or recv",
            words=" and ".join,
        ),
        Look(
            of=lambda seen: sum(row["received"] for row in seen.wire),
            right=lambda case: (
                len(case.lengths)
                * (max(tensor_of(case, r).nbytes for r in range(len(case.lengths))) + FOR_ALL_ELSE)
            ),
            mistakes={
                "These are more bytes than the tensors have. Are they pickled objects?": When(
                    lambda seen: any(row["dtype"] == "uint8" for row in seen.wire)
                ),
            },
            otherwise="To which length do you pad, and which dtype do you send?",
            came="the right list, but {value} bytes for rank {rank}",
            required=f"{{right}} at most: from each rank what the longest has, plus {FOR_ALL_ELSE}",
            same=lambda came, right: came <= right,
        ),
    ],
    most=2,
    too_much="Which of these can you do without? How many would it take with 100 ranks?",
    keeps="Which of your lines writes into it?",
    errors={
        "expanded size": PADDED,
        "number of sizes": PADDED,
        "invalid tensor size": UNLIKE,
        "SIGABRT": UNLIKE,
        "contiguous": "A collective takes contiguous tensors. Is this one a view of another?",
    },
    proves="tensors of 0 to 259 rows at 1 to 4 ranks: two collectives per call",
)
