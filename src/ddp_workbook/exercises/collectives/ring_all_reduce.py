"""Write an all-reduce as a ring of sends and receives.

Your function is called on all ranks, with a one-dimensional tensor of the same length and dtype.
When it returns, `tensor` holds the sum over the ranks, on every rank. Let N be the number of ranks,
and n the number of elements.

- Rank r sends only to rank r + 1, and the last rank to rank 0. A single rank sends nothing.
- A rank sends at most 2 (N - 1) messages. Each has at most n / N elements, rounded up, in the
  tensor's own dtype.
- Every N and every n from 1 must work: n may be smaller than N, not a multiple of N, or a million.
- Use no collective, only `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- Wait for everything that you start: the caller may change the tensor right after the call.
- Messages must be contiguous; `tensor` may be a view that is not, such as `big[::2]`.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, Pattern, at_most, edit
from ddp_workbook.judging.comm_comparisons import (
    BARRIER,
    MESSAGE_DTYPE,
    ONLY_SEND_AND_RECV,
    send_rows,
)

MINUTES = 30
HINTS = [
    "Every rank cuts its tensor into N pieces, as in the picture of the ring. In the first round, "
    "which piece does rank r send, and which one arrives there? And in the next round?",
    "tensor_split makes N pieces, even if the tensor is shorter, and they are views: what you "
    "write to a piece is written to the tensor. If all ranks begin with a send, all of them hang. "
    "isend returns at once, with something to wait for later.",
    "In the first round, rank r sends piece r. In each later one it sends the piece that has just "
    "arrived. In N - 1 rounds, add what arrives; in N - 1 more, let it replace the old numbers.",
]


def ring_all_reduce(tensor: Tensor) -> None:
    """Replace `tensor` [n], n >= 1, by its sum over the ranks, in place."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    pieces = tensor.tensor_split(ranks)  # views of the tensor
    for number in range(2 * (ranks - 1)):
        leaving = pieces[(rank - number) % ranks].contiguous()
        staying = pieces[(rank - number - 1) % ranks]
        sending = dist.isend(leaving, (rank + 1) % ranks)  # with send, all ranks would wait
        arriving = torch.empty_like(staying, memory_format=torch.contiguous_format)
        dist.recv(arriving, (rank - 1) % ranks)
        staying.copy_(staying + arriving if number < ranks - 1 else arriving)
        sending.wait()
    ### END SOLUTION


class Vectors(NamedTuple):
    """A call: how many ranks, and the length and dtype of their tensors."""

    ranks: int
    length: int
    dtype: torch.dtype
    contiguous: bool = True
    diverged: bool = False  # there is an inf on rank 1


LARGE = 2**16 + 1  # numbers: 256 KiB
# What the ranks hold is multiplied by this, so that sums need the bits that their dtype has.
FACTORS = {torch.float32: -0.5, torch.float64: 10**8 + 0.5, torch.int64: 10**12 + 1}


def cases(ranks: int) -> list[Vectors]:
    """No multiples of the ranks, fewer numbers than ranks, a multiple, many; then a view."""
    return [
        Vectors(ranks, 2 * ranks - 1, torch.int64),
        Vectors(ranks, ranks + 1, torch.float64),
        Vectors(ranks, max(1, ranks - 1), torch.float32),
        Vectors(ranks, 2 * ranks, torch.float32),
        Vectors(ranks, LARGE, torch.float32),
        Vectors(ranks, 2 * ranks - 1, torch.float64, diverged=True),  # as long as the first
        Vectors(ranks, 2 * ranks + 1, torch.float32, contiguous=False),
    ]


def tensor_of(case: Vectors, rank: int) -> Tensor:
    """1 to 9, over and over, 10 ** rank times: in a sum each rank has a decimal place."""
    tensor = scaled_numbers(case, 10**rank)
    if case.diverged and rank == 1:
        tensor[2] = torch.inf  # in a piece that reaches this rank when it is done
    return tensor if case.contiguous else torch.stack([tensor, tensor], -1)[:, 0]


def scaled_numbers(case: Vectors, number: int) -> Tensor:
    """What rank 0 holds, so many times."""
    return (torch.arange(case.length) % 9 + 1).to(case.dtype) * (FACTORS[case.dtype] * number)


def total(case: Vectors) -> Tensor:
    """The sum over the ranks."""
    return sum(tensor_of(case, rank) for rank in range(case.ranks))


def max_length(case: Vectors) -> int:
    """How many numbers a message may have: n / N, rounded up."""
    return -(-case.length // case.ranks)


def call_text(case: Vectors) -> str:
    """The call, and what the ranks held."""
    first = ", ".join(map(str, scaled_numbers(case, 1)[:3].tolist()))
    words = (
        f"{case.length:,} numbers in {f'{case.dtype}'[6:]}: on rank r, 10 ** r times {first}, ..."
    )
    if case.diverged:
        words += "; on rank 1, inf is in place 2"
    if not case.contiguous:
        words += "; a view that is not contiguous"
    return f"ring_all_reduce(tensor), where tensor was {words}"


ROUNDS = "range(2 * (ranks - 1))"
LEAVING_PLACE, STAYING_PLACE = "(rank - number) % ranks", "(rank - number - 1) % ranks"
NEW_NUMBERS = "staying + arriving if number < ranks - 1 else arriving"
REBOUND_PIECE = f"pieces[{STAYING_PLACE}] = staying + arriving"
CHECK = DistributedCheck(
    sizes=(1, 2, 3, 4, 6),
    cases=cases,
    call_text=call_text,
    make_args=lambda case, rank: (tensor_of(case, rank),),
    observe=lambda returned, tensor: tensor,
    compare={
        "operations": ONLY_SEND_AND_RECV,
        "receivers other than the next rank": Comparison(
            "Draw who sends to whom. Is it a ring?",
            [],
            lambda obs: sorted(
                {row["peer"] for row in send_rows(obs)} - {(obs.rank + 1) % obs.size}
            ),
        ),
        "dtypes": MESSAGE_DTYPE,
        "bytes of a message": at_most(
            "How long is the longest of N pieces, if you cut them as equal as possible?",
            lambda case: max_length(case) * case.dtype.itemsize,
            lambda obs: max((row["bytes"] for row in send_rows(obs)), default=0),
        ),
        "messages": at_most(
            "Count the messages, round by round. Which pieces does the next rank still need?",
            lambda case: 2 * (case.ranks - 1),
            lambda obs: len(send_rows(obs)),
        ),
        "sum": Comparison(
            "Each rank's numbers have a decimal place of their own. Whose are in this sum, and how "
            "often?",
            total,
        ),
    },
    mistakes={
        **BARRIER,
        "Rank {rank} has neither sent nor received. Which rank adds up its numbers?": edit(
            ROUNDS, "range(0)"
        ),
        "These messages go to the previous rank. In which direction does the ring go?": edit(
            LEAVING_PLACE,
            LEAVING_PLACE.replace("-", "+"),
            STAYING_PLACE,
            STAYING_PLACE.replace("-", "+"),
            "(leaving, (rank + 1)",
            "(leaving, (rank - 1)",
            "(arriving, (rank - 1)",
            "(arriving, (rank + 1)",
        ),
        "Some of these are still rank {rank}'s old numbers. Which memory do you fill, and is it "
        "the tensor's own?": [
            edit("tensor.tensor_split", "tensor.clone().tensor_split"),
            edit("tensor.tensor_split", "tensor.contiguous().tensor_split"),
            edit("tensor.tensor_split(ranks)", "[*tensor.tensor_split(ranks)]")
            + edit(
                "staying.copy_",
                f"if number < ranks - 1:\n            {REBOUND_PIECE}\n        staying.copy_",
            )
            + edit(NEW_NUMBERS, "staying if number < ranks - 1 else arriving"),
        ],
        "Nearly right. In which dtype do you send, and in which do you add?": edit(
            "staying + arriving", "staying.float() + arriving.float()"
        ),
        "The wrong places are unchanged. In which piece are the last numbers?": edit(
            "tensor.tensor_split", "tensor[: len(tensor) // ranks * ranks].tensor_split"
        ),
        "Some sums hold a rank's numbers more than once. Do you add arriving numbers that already "
        "contain them?": edit(NEW_NUMBERS, "staying + arriving"),
        "Some sums lack a rank's numbers. Which piece is sent in which round, and which ranks have "
        "added to it by then?": [
            edit(NEW_NUMBERS, "arriving"),
            edit(LEAVING_PLACE, LEAVING_PLACE.replace("number", "number % (ranks - 1)"))
            + edit(STAYING_PLACE, STAYING_PLACE.replace("number", "number % (ranks - 1)")),
        ],
        "Some sums lack a rank's numbers. After how many rounds is a piece complete, and after how "
        "many has it reached every rank?": [
            edit(ROUNDS, "range(ranks - 1)"),
            edit(ROUNDS, "range(2 * ranks - 3)"),
            edit(ROUNDS, "range(min(2, ranks))", "number < ranks - 1", "number == 0"),
        ],
        "This message is the whole tensor. How much of it must go in one round?": Pattern(
            lambda obs: obs.value == obs.case.length * obs.case.dtype.itemsize, "bytes of a message"
        ),
    },
    errors={
        "index out of range": "How many pieces are there? chunk and split may make fewer than "
        "there are ranks.",
        "size of tensor": "Does the arriving piece have the length of the one that it goes to?",
    },
    on_pass=f"sums of 1 to {LARGE:,} numbers at 1 to 4 and 6 ranks, in place; each rank sends only "
    "to the next one, at most 2 (N - 1) messages of n / N numbers, rounded up",
)
