"""Tell which ranks hold other tensors than rank 0, by one small message.

Your function is called on all ranks, each with its own list of tensors. The lists are equally long,
and the tensors of one place have the same shape and dtype on all ranks: float32, bfloat16 or int64,
on the CPU. Return, on every rank, the list of the ranks whose tensors are not those of rank 0, in
order. The same bits are the same: 0.0 is not -0.0, and a nan is the same as an equal nan.

- A single bit in one tensor counts, and so does its place: two rows, or two tensors, that have
  changed places make a difference.
- Use one collective, and send at most 64 bytes from each rank, however large the tensors are. Of
  different tensors you may take one pair in a thousand million for the same, by chance.
- Leave the tensors unchanged. A tensor may be a view that is not contiguous.
"""

import math
import zlib
from operator import le
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, edit, in_words

MINUTES = 10
HINTS = [
    "What could stand for all bits of a list of tensors, and has a few bytes only?",
    "`zlib.crc32(data, start)` makes a number of 32 bits from bytes, and goes on from another one. "
    "Which view of a tensor gives its bytes?",
    "`tensor.contiguous().view(-1).view(torch.uint8).numpy()` are a tensor's bytes. Gather the "
    "number of each rank, and compare all with that of rank 0.",
]


def same_on_all_ranks(tensors: list[Tensor]) -> list[int]:
    """The ranks whose tensors differ from rank 0's in any bit, in order; on every rank."""
    ### BEGIN SOLUTION
    total = 0
    for tensor in tensors:
        bits = tensor.contiguous().view(-1).view(torch.uint8)
        total = zlib.crc32(bits.numpy(), total)
    own = torch.tensor([total])
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return [rank for rank, one in enumerate(everyone) if one != everyone[0]]
    ### END SOLUTION


class Difference(NamedTuple):
    """One call: what is done to the tensors of some ranks, of so many."""

    what: str
    ranks: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    size: int = 4


CASES = [
    Difference("nothing", ()),
    Difference("one number is larger by one bit", (2,)),
    Difference("two numbers differ, and their sum does not", (1, 3)),
    Difference("two rows have changed places", (3,)),
    Difference("two tensors have changed places", (1,)),
    Difference("a zero is -0.0", (1, 2)),
    Difference("one number is larger by one bit", (1,), torch.bfloat16),
    Difference("one number is larger by one bit", (0,)),
    Difference("one number is larger by 2 ** 40", (2, 3), torch.int64),
    Difference("nothing", (), torch.bfloat16),
    Difference("one number of 2 ** 60 is larger by 1", (1, 2), torch.int64),
    Difference("one number is 65,537 instead of 512", (3,), torch.int64),
    Difference("one of 3,000 numbers is larger by one bit", (2,)),
]


def cases(size: int) -> list[Difference]:
    """The calls at this world size."""
    existing = range(size)
    return [
        case._replace(ranks=tuple(rank for rank in case.ranks if rank in existing), size=size)
        for case in CASES
    ]


def tensors_of(case: Difference, rank: int) -> list[Tensor]:
    """A rank's tensors: views that are not contiguous, one with a nan if it can.

    What lies beside the numbers of the first in memory is another number on each rank.
    """
    columns = 500 if "3,000" in case.what else 8
    storage = torch.full((6, columns + 1), float(rank), dtype=case.dtype)
    numbers = torch.arange(6 * columns).reshape(6, columns)
    storage[:, :columns] = numbers * 3 - 40
    first, second = storage[:, :columns].T, (numbers + 1000).to(case.dtype).T
    if case.dtype.is_floating_point:
        first += 0.3  # not a whole number: what is printed of it is not all of it
        second[0, 0] = math.nan
        second[0, 1] = 0.0
    else:
        first[3, 2], second[0, 0] = 512, 2**60
    if rank not in case.ranks:
        return [first, second]
    first, second = first.clone(), second.clone()
    if "one bit" in case.what:
        int_dtype = torch.int32 if case.dtype is torch.float32 else torch.int16
        first.view(int_dtype)[3, 2] += 1
    elif "2 ** 40" in case.what:
        first[3, 2] += 2**40
    elif "2 ** 60" in case.what:
        second[0, 0] += 1
    elif "65,537" in case.what:  # the checksum adler32 is the same
        first[3, 2] = 65_537
    elif "their sum" in case.what:
        first[1, 1] += 8
        first[2, 2] -= 8
    elif "rows" in case.what:
        first = first[[0, 2, 1, *range(3, 8)]]
    elif "two tensors" in case.what:
        first, second = second, first
    elif "-0.0" in case.what:
        second[0, 1] = -0.0
    return [first, second]


def expected(case: Difference) -> list[int]:
    """The ranks that differ from rank 0."""
    return [rank for rank in range(case.size) if (rank in case.ranks) != (0 in case.ranks)]


def call_text(case: Difference) -> str:
    """The call, in words."""
    who = f" on ranks {in_words([*case.ranks])}" if case.ranks else ""
    return f"same_on_all_ranks(tensors), two of {case.dtype}: {case.what}{who}"


BITS = "tensor.contiguous().view(-1).view(torch.uint8)"
CRC = "zlib.crc32(bits.numpy(), total)"
OWN = "own = torch.tensor([total])"
DIFFERS = "one != everyone[0]"
CHECK = DistributedCheck(
    cases=cases,
    call_text=call_text,
    make_args=lambda case, rank: (tensors_of(case, rank),),
    compare={
        "ranks": Comparison(
            "Print the number that stands for each rank's tensors. Which two are equal, "
            "or unequal, and should not be?",
            expected,
        ),
        "bytes": Comparison(
            "What do you send that grows with the tensors?",
            64,
            lambda obs: sum(row["bytes"] for row in obs.communication),
            actual="the right ranks, but {value} bytes from rank {rank}",
            required="at most 64",
            equal=le,
        ),
    },
    mistakes={
        "A sum forgets where its numbers stand, and what cancels out. What keeps their places?": [
            edit(CRC, "total + int(bits.to(torch.int64).sum())"),
            edit(CRC, "total + tensor.double().nansum().item()")
            + edit(OWN, "own = torch.tensor([total], dtype=torch.float64)"),
        ],
        "The numbers start anew with each tensor, so only the last one counts.": edit(
            "bits.numpy(), total", "bits.numpy()"
        ),
        "The order of the tensors is lost. How does the second number depend on the first?": edit(
            CRC, "total ^ zlib.crc32(bits.numpy())"
        ),
        "This rank compares with its neighbour. With whom should all compare?": edit(
            DIFFERS, "one != everyone[rank - 1]"
        ),
        "Every rank gives an answer of its own here. Whose tensors should all compare with?": edit(
            DIFFERS, "one != own"
        ),
        "Numbers are equal, and their bits are not. What do you hash?": edit(
            BITS, "(tensor + 0).contiguous().view(-1).view(torch.uint8)"
        ),
    },
    max_collectives=1,
    unchanged_hint="Which of your lines writes into a tensor?",
    errors={
        "not compatible": "A view needs its numbers side by side. Which call makes a copy that is?",
        "unsupported ScalarType": "NumPy has no bfloat16. As which type could you view the bytes?",
    },
    on_pass="who differs from rank 0, by one bit or by its place, at 1 to 4 ranks in one message",
)
