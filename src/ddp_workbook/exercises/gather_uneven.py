"""Give every rank the tensors of all ranks, in rank order, although they differ in length.

Your function is called on all ranks, each with a tensor of its own. The tensors have the same dtype
and the same shape, but for dimension 0, their length: it may be another one on each rank, also 0 on
some ranks or on all. They have one dimension or more. What comes back, on every rank, is the list
of all tensors as they were: number r is that of rank r, with its length, its shape, and its dtype.

- A call makes two collectives at most, whatever the number of ranks, and no send or recv.
- It moves tensors, not objects: pickling costs bytes and time, and who unpickles runs what comes.
- A rank receives no more than each rank's tensor padded to the length of the longest one, and
  64 bytes from each rank for all else that you need.

On gloo, a collective on tensors that differ in size ends the process, or gives wrong numbers and
says nothing. `tensor` stays as it is.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "all_gather takes tensors of one size. Could yours be made so? What does every rank have to "
    "know for that, and how does it get to know it?",
    "First gather the lengths. Then every rank makes a tensor as long as the longest, whose other "
    "dimensions and dtype are those of its own, and puts its own into the first rows.",
    "After the second all_gather each of the tensors still has its padding, and you have the "
    "lengths, in rank order. Which rows of tensor r are rank r's?",
]
PADDED = "How long is what you pad to, here, and which other dimensions has it?"
UNLIKE = "Tensors of unlike size met in a collective. Which size has each, and who knows it?"
FOR_ERRORS = {"expanded size": PADDED, "number of sizes": PADDED}
FOR_ERRORS |= {"invalid tensor size": UNLIKE, "SIGABRT": UNLIKE}
SIZES = (1, 2, 3, 4)
PAUSE = 0.02  # seconds that the others come later than rank 0
FOR_ALL_ELSE = 64  # bytes from each rank
# Lengths on ranks 0 to 3, the other dimensions, and the dtype. Each case has its number.
CASES = [
    ([2, 3, 1, 4], (), torch.float64),
    ([150, 40, 7, 90], (), torch.float32),
    ([0, 0, 0, 0], (3, 2), torch.float32),
    ([3, 0, 5, 0], (2,), torch.int64),  # the last one: who does not come then, is missed
]
ONE_HAS_IT = "After gather or reduce one rank alone has the result. How do the others get it?"


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


def numbers(case: int, rank: int) -> Tensor:
    """A rank's tensor; in one case it ends with 0, in others it has numbers that float32 lacks."""
    lengths, rest, dtype = CASES[case]
    first = {torch.float32: 101, torch.float64: 100.1, torch.int64: 10**8 + 1}[dtype] * (rank + 1)
    tensor = torch.arange(lengths[rank] * torch.Size(rest).numel(), dtype=dtype) + first
    tensor[-1:] *= dtype != torch.float64
    return tensor.reshape(lengths[rank], *rest)


class Late(TorchDispatchMode):
    """Comes late to each collective, so that whoever does not wait for it reads too early."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator as it is."""
        time.sleep(PAUSE if func.namespace == "c10d" else 0)
        return func(*args, **(kwargs or {}))


def each_case(gather_uneven: Callable, rank: int) -> list[dict]:
    """In a rank, for each case: what came back, at once and later, and tensor."""
    answers, came = [], []
    for case in range(len(CASES)):
        tensor = numbers(case, rank)
        with Late() if rank else nullcontext():
            came.append(gather_uneven(tensor))
        answers.append({"came": copied(came[-1]), "tensor": tensor})
    time.sleep(3 * PAUSE if dist.get_world_size() > 1 and not rank else 0)
    return [{**answer, "later": copied(one)} for answer, one in zip(answers, came, strict=True)]


def copied(came: Any) -> list | str:
    """Copies of the tensors in a list; all else in words."""
    if not isinstance(came, list | tuple):
        return f"{in_words(came)}, a {type(came).__name__}," if came is not None else "None"
    return [one.detach().clone() if isinstance(one, Tensor) else in_words(one) for one in came]


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare the lists with what the ranks held, then look at the wire, at each world size."""
    for size in sizes:
        answers, wire = attempt_on_ranks(attempt, each_case, each=range(size))
        for case in range(len(CASES)):
            for rank, answer in enumerate(answers):
                ops = set(wire.loc[wire["rank"] == rank, "op"])
                compare_answer(case, rank, size, answer[case], ops)
        for rank in range(size):
            compare_wire(rank, size, wire[wire["rank"] == rank])
    return "tensors of 0 to 150 rows at 1 to 4 ranks: two collectives, padded to the longest"


def compare_answer(case: int, rank: int, size: int, answer: dict, ops: set[str]) -> None:
    """Raise NotYet if this rank's list is not that of all tensors."""
    rights, came = [numbers(case, r) for r in range(size)], answer["came"]
    held = ", ".join(f"{in_words(right)} on rank {r}" for r, right in enumerate(rights))
    called = f"gather_uneven(tensor), where tensor was {held}"
    required = f"a list of {size} tensor{'s' * (size > 1)}, on every rank"
    of_one = rank and ops & {"gather", "reduce"}
    if isinstance(came, str) or len(came) != size:
        look = "One tensor of each rank is to come back, on every way through the function."
        words = came if isinstance(came, str) else f"a list of {len(came)}: {in_words(came)}"
        raise NotYet(called, f"{words} on rank {rank}", required, ONE_HAS_IT if of_one else look)
    for owner, (value, right) in enumerate(zip(came, rights, strict=True)):
        if not same(value, right):
            words, wanted = in_words(value), in_words(right)
            if isinstance(value, Tensor) and words == wanted:
                words, wanted = in_full(value), in_full(right)
            look = ONE_HAS_IT if of_one else look_at(owner, rank, answer, rights)
            required = f"{wanted}, as it was on rank {owner}"
            raise NotYet(called, f"{words} as number {owner} of rank {rank}'s list", required, look)
    if not same(answer["tensor"], rights[rank]):
        words, look = f"tensor has changed on rank {rank}", "Which line writes into it?"
        raise NotYet(called, f"the right list, but {words}", "tensor as it was", look)


def in_full(tensor: Tensor) -> str:
    """What in_words leaves out: all digits, the shape, and the dtype."""
    return f"{tensor.flatten()[:4].tolist()} in shape {tuple(tensor.shape)} and {tensor.dtype}"


def same(one: Any, other: Tensor) -> bool:
    """Equal in dtype, shape, and every number."""
    return isinstance(one, Tensor) and one.dtype == other.dtype and torch.equal(one, other)


def look_at(owner: int, rank: int, answer: dict, rights: list[Tensor]) -> str:
    """The thought behind a wrong tensor, number `owner` of this rank's list."""
    came, later, right = answer["came"], answer["later"], rights[owner]
    value, rows, own = came[owner], len(right), rights[rank]
    if not isinstance(value, Tensor):
        return "The list holds something else than tensors. What was to be put there?"
    if isinstance(later, list) and all(map(same, later, rights)):
        return "The tensors were not there yet, but a moment later. Who waits for the collective?"
    if all(any(same(one, other) for one in came) for other in rights):
        return "These are the right tensors in another order. What decides which is the first?"
    if rank != owner and same(value, own):
        return f"This is rank {rank}'s own tensor. How does rank {owner}'s get here?"
    if value.shape == right.shape:
        if torch.allclose(value.double(), right.double(), rtol=1e-6, atol=0.5):
            return "In which dtype do the numbers travel, and in which do they come back?"
    elif value.dim() and value.shape[1:] == right.shape[1:]:
        if len(value) > rows and torch.equal(value[:rows].to(right.dtype), right):
            return f"Rank {owner}'s tensor has {rows} rows. What stands behind them?"
        if len(value) < rows and torch.equal(value.to(right.dtype), right[: len(value)]):
            if rank != owner and len(value) == len(own):
                return "It has as many rows as the rank's own tensor. Whose length cuts it?"
            if torch.equal(value, right[right != 0]):
                return "A 0 may be data, and not padding. What else tells where a tensor ends?"
            return "Rows are missing at its end. What decides where it is cut?"
    if value.numel() == right.numel() and torch.equal(value.flatten(), right.flatten()):
        return "The numbers are right, the shape is not. Where did its other dimensions get lost?"
    return f"Follow one row of rank {owner}'s: where is it in each tensor that you send or fill?"


def compare_wire(rank: int, size: int, rows: pd.DataFrame) -> None:
    """Raise NotYet for too many operations or bytes on this rank."""
    called, right = f"gather_uneven, {len(CASES)} times", "the right lists, after"
    if len(rows) > 2 * len(CASES):
        each = ", ".join(f"{op} {n} times" for op, n in rows["op"].value_counts(sort=False).items())
        came = f"{right} {len(rows)} operations on rank {rank}: {each}"
        look = "Every one of them costs a trip. How many would a call need with a hundred ranks?"
        raise NotYet(called, came, f"{2 * len(CASES)} at most, two collectives a call", look)
    each = [max(numbers(case, r).nbytes for r in range(size)) for case in range(len(CASES))]
    most, received = size * sum(one + FOR_ALL_ELSE for one in each), rows["received"].sum()
    if received > most:
        look = "To which length is padded, and in which dtype does it travel?"
        if "uint8" in set(rows["dtype"]):
            look = "Bytes went over the wire, more than the tensors have. Are they pickled objects?"
        came, required = f"{right} {received:,} bytes for rank {rank}", f"{most:,} at most"
        required += f": from each rank what the longest has, and {FOR_ALL_ELSE} bytes, in each call"
        raise NotYet(called, came, required, look)
