"""Add up a tensor over the ranks, in a ring: an all-reduce by hand, made of sends and receives.

Your function is called on all ranks, with a tensor of one dimension that has the same length and
dtype everywhere. When it returns, the tensor itself holds the sum over the ranks, on every rank.
With N ranks and n numbers in the tensor:

- Rank r sends to rank r + 1 alone, and the last rank to rank 0. A rank alone sends nothing.
- A rank sends 2 (N - 1) messages or fewer. None has more than n / N numbers, rounded up, of the
  tensor's own dtype.
- N may be any number, and n any number from 1: smaller than N, or no multiple of it, or a million.
- No collective is used: nothing but `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- What has been started is waited for. The caller may change the tensor at once.
"""

from collections.abc import Callable

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words
from ddp_workbook.exercises.judging.point_to_point import by_case, call

HINTS = [
    "Every rank cuts its tensor into N pieces, as in the picture of the ring. Which piece does "
    "rank r send in the first round, and which one arrives there? And in the next round?",
    "tensor_split makes N pieces, also of a tensor that is shorter, and what is written to a piece "
    "is written to the tensor. If all ranks begin with a send, all of them wait for ever; isend "
    "does not wait, and gives you something to wait for later.",
    "First, rank r sends piece r. In each later round it sends on what has arrived just before. "
    "N - 1 times the arriving numbers are added, N - 1 times they take the place of the old ones.",
]
PIECES = "How many pieces are there? chunk and split may make fewer than there are ranks."
FOR_ERRORS = {
    "list index out of range": PIECES,
    "tuple index out of range": PIECES,
    "size of tensor": "The piece that arrives, and the piece that it goes to: is it the same one?",
    "contiguous": "Which numbers are in this piece? A message is a stretch of the tensor.",
}
SIZES = (1, 2, 3, 4, 6)
LARGE = 2**18 + 1  # numbers: 1 MiB
# What the ranks hold is multiplied with this, so that sums need the bits that their dtype has.
FACTORS = {torch.float32: 1, torch.float64: 10**8 + 1, torch.int64: 10**12 + 1}


def ring_all_reduce(tensor: Tensor) -> None:
    """Replace `tensor` (one dimension, any length) by its sum over the ranks, in place."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = tensor.tensor_split(ranks)  # views of the tensor
    for number in range(2 * (ranks - 1)):
        leaving, staying = pieces[(rank - number) % ranks], pieces[(rank - number - 1) % ranks]
        sending = dist.isend(leaving, (rank + 1) % ranks)  # a send would wait, and all would send
        arriving = torch.empty_like(staying)
        dist.recv(arriving, (rank - 1) % ranks)
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
        sending.wait()
    ### END SOLUTION


def cases(ranks: int) -> list[tuple[int, torch.dtype]]:
    """Length and dtype: a multiple of the ranks, no multiples, fewer numbers than ranks, many."""
    return [
        (2 * ranks, torch.float32),
        (2 * ranks - 1, torch.int64),
        (ranks + 1, torch.float64),
        (max(1, ranks - 1), torch.float32),
        (LARGE, torch.float32),
    ]


def numbers(length: int, dtype: torch.dtype, times: int = 1) -> Tensor:
    """1 to 9, over and over, each so many times. Rank r holds them 10 ** r times."""
    return (torch.arange(length) % 9 + 1).to(dtype) * (FACTORS[dtype] * times)


def all_ones(ranks: int) -> int:
    """111 for 3 ranks: in a sum each rank's numbers are, in its decimal place, once."""
    return int("1" * ranks)


def in_call(length: int, dtype: torch.dtype, ranks: int) -> str:
    """The call, and what the ranks held."""
    held = [f"{in_words(numbers(length, dtype, 10**r))} on rank {r}" for r in range(ranks)]
    return f"ring_all_reduce(tensor), where tensor was {', '.join(held)}"


def each_case(ring_all_reduce: Callable, rank: int) -> list[Tensor | None]:
    """In a rank, for each case: what the tensor holds if that is wrong."""
    answers, ranks = [], dist.get_world_size()
    for length, dtype in cases(ranks):
        tensor = numbers(length, dtype, 10**rank)
        memory = tensor.detach()  # the caller's, whatever becomes of `tensor`
        call(ring_all_reduce, in_call(length, dtype, ranks), tensor)
        right = torch.equal(memory, numbers(length, dtype, all_ones(ranks)))
        answers.append(None if right else memory)
    return answers


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Judge what went over the wire in each case, then the sums, at each world size."""
    for ranks in sizes:
        kinds = cases(ranks)
        answers, wire = attempt_on_ranks(attempt, each_case, each=range(ranks))
        for number, tables in enumerate(by_case(in_call(*kinds[0], ranks), wire)):
            compare_messages(kinds[number], [rows[rows["op"] == "send"] for rows in tables])
            for rank, values in enumerate(answers):
                if (value := values[number]) is not None:
                    compare_sums(kinds[number], rank, value, ranks, len(tables[rank]))
    return (
        f"sums of 1 to {LARGE:,} numbers at 1 to 4 and 6 ranks, in place; each rank sends to the "
        "next one alone, at most 2 (N - 1) messages of n / N numbers, rounded up"
    )


def compare_messages(kind: tuple[int, torch.dtype], sends: list[pd.DataFrame]) -> None:
    """Raise NotYet for the first rank that has sent what the ring forbids."""
    (length, dtype), ranks = kind, len(sends)
    most, rounds = -(-length // ranks), 2 * (ranks - 1)
    star = all(0 in (rank, peer) for rank, rows in enumerate(sends) for peer in rows["peer"])
    for rank, rows in enumerate(sends):
        after, came = (rank + 1) % ranks, ""
        wrong = [peer for peer in rows["peer"] if peer != after]
        largest = max(rows["bytes"], default=0)
        if wrong:
            came, required = f"rank {rank} sent to rank {wrong[0]}", f"to rank {after} alone"
            look = "Draw who sends to whom. Does it make a ring?"
            if set(rows["peer"]) == {(rank - 1) % ranks}:
                look = "That is the rank before. In which direction does the ring go round?"
            if star:
                look = "Everything passes through rank 0. What if there were a hundred ranks?"
        elif largest > most * dtype.itemsize:
            came = f"rank {rank} sent a message of {largest:,} bytes"
            required = f"at most {most * dtype.itemsize:,} bytes in one, {most:,} of the numbers"
            look = "How long is the longest of N pieces, if they are as equal as can be?"
            if str(dtype) not in {f"torch.{name}" for name in rows["dtype"]}:
                look = "In which dtype does it travel?"
            elif largest == length * dtype.itemsize:
                look = "The whole tensor is on its way. How much of it has to be, in one round?"
        elif len(rows) > rounds:
            came, required = f"rank {rank} sent {len(rows)} messages", f"at most {rounds}"
            look = "Count the messages round by round. Which of them could be spared?"
            if sum(rows["bytes"]) <= rounds * most * dtype.itemsize:
                look = "Every message costs a trip. Which of these numbers can go together?"
        if came:
            raise NotYet(in_call(length, dtype, ranks), came, required, look)


def compare_sums(kind: tuple, rank: int, value: Tensor, ranks: int, calls: int) -> None:
    """Raise NotYet for a tensor that does not hold the sums."""
    total = numbers(*kind, all_ones(ranks))
    place = int((value != total).nonzero()[0])
    came, required = f"{in_words(value)} on rank {rank}", f"{in_words(total)} on every rank"
    if in_words(value) == in_words(total):  # cut, or rounded
        came = f"{value[place].item()} in place {place} on rank {rank}"
        required = f"{total[place].item()} there"
    times = value.double() / numbers(*kind).double()
    raise NotYet(in_call(*kind, ranks), came, required, look_at(times, rank, ranks, calls))


def look_at(times: Tensor, rank: int, ranks: int, calls: int) -> str:
    """The thought behind a tensor that holds so many times what rank 0 had."""
    right, whole = all_ones(ranks), len(times) // ranks * ranks
    ready, times = times.round() == right, times.nan_to_num(-1)
    if (times == 10**rank).all():
        came = "" if calls else f"Rank {rank} has neither sent nor received. "
        return f"{came}This is what it had before. Where do the numbers go that arrive?"
    if ready.all():
        return "Nearly right. In which dtype does it travel, and in which is it added up?"
    if whole and ready[:whole].all() and (times[whole:] == 10**rank).all():
        return f"From place {whole} on it is as before. In which piece are these numbers?"
    place = int((~ready).nonzero()[0])
    digits = f"{round(times[place].item()):0{ranks}d}"[::-1]
    if set(digits) - set("0123") or (times - times.round()).abs().max() > 1e-3:
        return "Which of the ranks' numbers are in it, and what was done besides adding them up?"
    if many := [r for r, digit in enumerate(digits) if digit > "1"]:
        again = f"Place {place} holds the numbers of rank {many[0]} more than once. "
        return again + "Are arriving numbers added that hold them already?"
    lacks = f"Place {place} lacks the numbers of rank {digits.find('0')}. "
    if calls >= 4 * (ranks - 1):
        return lacks + "Which piece is sent in which round, and who has added to it by then?"
    if ready.any():
        return lacks + "Other places are done here. Who passes on what is done?"
    return lacks + "In how many rounds does a number come to every rank?"
