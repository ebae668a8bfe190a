"""Cut a tensor into equal pieces, and keep this rank's piece.

Every rank calls your function with the same tensor. Flatten it, append as few zeros as it takes to
cut the row into equal pieces, one for each rank, and return piece r on rank r. With 10 elements on
4 ranks, a piece has 3 elements: rank 0 keeps the first three, and rank 3 keeps the last one and two
zeros.

- The piece is one-dimensional and has the dtype of the tensor.
- The caller deletes the tensor afterwards to save memory. The piece therefore has memory of its
  own, no more than its elements need.
- `tensor` may be a parameter. The piece is not part of its graph and requires no gradient.
- `tensor` may have any shape, fewer elements than there are ranks, or no elements at all. It may be
  a view that is not contiguous.
- Nothing is sent, and `tensor` stays unchanged.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.exercises import Look, OnRanks, Seen, When
from ddp_workbook.exercises.judging.pieces import (
    Whole,
    calls,
    filled_memory,
    identical,
    in_call,
    in_full,
    piece,
    row,
    whole,
)

MINUTES = 6
HINTS = [
    "How long is a piece when 4 ranks share 10 elements? Is the quotient rounded up or down, and "
    "how many zeros does that take in all?",
    "Rank r's piece is a slice of the padded row. How much memory does a slice of a tensor keep "
    "alive?",
    "F.pad and new_zeros both make zeros. A slice is a view; clone gives it memory of its own. "
    "What takes a tensor out of autograd's graph?",
]


def shard_and_pad(tensor: Tensor) -> Tensor:
    """Return this rank's piece of `tensor` (any shape): [n], with the same n on every rank."""
    ### BEGIN SOLUTION
    flat = tensor.detach().flatten()
    ranks = dist.get_world_size()
    padding = flat.new_zeros(-len(flat) % ranks)
    length = (len(flat) + len(padding)) // ranks
    start = dist.get_rank() * length
    return torch.cat([flat, padding])[start : start + length].clone()  # a view would keep it all
    ### END SOLUTION


def watched(function: Callable, tensor: Tensor) -> dict[str, Any]:
    """Call it; return the piece, and what else the piece keeps in memory."""
    with filled_memory():
        returned = function(tensor)
    beside = ""
    if isinstance(returned, Tensor):
        memory, theirs = returned.untyped_storage(), tensor.untyped_storage()
        if memory.nbytes() and memory.data_ptr() == theirs.data_ptr():
            beside = "lies in the tensor's own memory"
        elif memory.nbytes() > returned.nbytes:
            beside = f"keeps {memory.nbytes()} bytes of memory for {returned.nbytes} of elements"
        elif returned.grad_fn is not None:
            beside = "keeps the tensor alive through autograd's graph"
        elif returned.requires_grad:
            beside = "requires a gradient"
    return {"piece": returned, "beside": beside}


def flat(call: Whole) -> Tensor:
    """The elements in one row."""
    return whole(call).detach().flatten()


def padded_to(tensor: Tensor, length: int) -> Tensor:
    """The elements of each row, and zeros behind them."""
    return torch.cat([tensor, tensor.new_zeros(max(0, length - len(tensor)), *tensor.shape[1:])])


def cut(
    length: Callable[[Whole], int], padded: bool = False, rest: bool = False
) -> Callable[[Whole, int], Tensor]:
    """Pieces of another length: short ones are `padded`, or the last one takes the `rest`."""

    def own(call: Whole, rank: int) -> Tensor:
        long = length(call)
        end = None if rest and rank == call.ranks - 1 else long * (rank + 1)
        mine = flat(call)[long * rank : end]
        return padded_to(mine, long) if padded else mine

    return own


def rounded_up(call: Whole) -> int:
    """How long a piece is."""
    return -(-flat(call).numel() // call.ranks)


def rounded_down(call: Whole) -> int:
    """How many elements each rank has at least."""
    return flat(call).numel() // call.ranks


def a_round_more(call: Whole) -> int:
    """How long a piece is if zeros are added even where none are needed."""
    return rounded_down(call) + 1


def spread(call: Whole, rank: int) -> Tensor:
    """The elements spread as evenly as possible."""
    return flat(call).tensor_split(call.ranks)[rank]


def rows(call: Whole, rank: int) -> Tensor:
    """Whole rows of the tensor, padded with rows of zeros; a 0-D or 1-D tensor is cut rightly."""
    tensor = whole(call).detach()
    if tensor.dim() < 2:
        return piece(call, rank)
    long = -(-len(tensor) // call.ranks)
    return padded_to(tensor, long * call.ranks)[long * rank : long * (rank + 1)]


def in_memory_order(call: Whole) -> Tensor:
    """The whole row with its padding, with the elements in their order in memory."""
    tensor = whole(call).detach()
    if call.kind == "not contiguous":
        tensor = tensor.mT
    return padded_to(tensor.flatten(), len(row(call)))


def zeros_first(call: Whole) -> Tensor:
    """The padding, then the elements."""
    return torch.cat([row(call)[flat(call).numel() :], flat(call)])


def equal_pieces(made: Callable[[Whole], Tensor]) -> Callable[[Whole, int], Tensor]:
    """A mistake that cuts another row."""
    return lambda call, rank: made(call).reshape(call.ranks, rounded_up(call))[rank]


def whole_rows(seen: Seen) -> bool:
    """Whether it still has the dimensions of the tensor, except for the number of rows."""
    shape = getattr(seen.value, "shape", ())
    return len(shape) > 1 and shape[1:] == whole(seen.case).shape[1:]


def same_numbers(seen: Seen) -> bool:
    """Whether it is the right piece except for its dtype or its shape."""
    if not isinstance(seen.value, Tensor) or seen.value.numel() != seen.right.numel():
        return False
    return torch.allclose(seen.value.flatten().double(), seen.right.double(), rtol=1e-2)


def begins_rightly(seen: Seen) -> bool:
    """Whether only the padding is wrong."""
    count = max(0, min(len(seen.right), flat(seen.case).numel() - seen.rank * len(seen.right)))
    value = seen.value
    same = isinstance(value, Tensor) and value.shape == seen.right.shape and count < len(value)
    return same and identical(value[:count], seen.right[:count])


MISTAKES = {
    "This is every element, on every rank. Which of them belong to rank {rank}?": flat,
    "This is the whole row with its padding. Which part of it is rank {rank}'s?": row,
    "This is rank 0's piece on every rank. Where does the rank come in?": (
        lambda call: piece(call, 0)
    ),
    "This is the next rank's piece. Ranks are counted from 0.": (
        lambda call, rank: padded_to(flat(call), len(row(call)))[
            rounded_up(call) * (rank + 1) : rounded_up(call) * (rank + 2)
        ]
    ),
    "The piece has only the elements that were left for it. Where are the zeros that make all "
    "pieces equally long?": cut(rounded_up),
    "The elements are spread as evenly as possible, and pieces differ in length. An all-gather "
    "takes equal ones: when do the zeros come, before the cut or after?": spread,
    "The elements are spread as evenly as possible, and each piece has its own zeros. Where in the "
    "row do zeros belong?": lambda call, rank: padded_to(spread(call, rank), rounded_up(call)),
    "The elements are dealt out like cards. A piece is one block of the row.": (
        lambda call, rank: row(call)[rank :: call.ranks]
    ),
    "Elements are missing: the remainder of the division is on no rank. Was the length rounded up "
    "or down?": cut(rounded_down),
    "The last piece takes all that is left, and is longer than the others. What makes the "
    "pieces equally long?": cut(rounded_down, rest=True),
    "There are more zeros than needed. How many are needed if the number of elements is "
    "already a multiple of the number of ranks?": cut(a_round_more, padded=True),
    "The zeros come before the elements. Where do they belong?": equal_pieces(zeros_first),
    "These are whole rows of the tensor. What does flatten do first?": When(whole_rows),
    "These are the elements of whole rows, flattened after the cut. What comes first?": (
        lambda call, rank: rows(call, rank).flatten()
    ),
    "This tensor is not contiguous, and these are its elements as they lie in memory. In which "
    "order does flatten take them?": equal_pieces(in_memory_order),
    "The elements are right, the dtype is not. Which line decides in which dtype the zeros, or the "
    "row, are made?": When(
        lambda seen: same_numbers(seen) and seen.value.shape == seen.right.shape
    ),
    "The elements are right, the shape is not. How many dimensions does a piece have?": (
        When(same_numbers)
    ),
    "What follows the elements is not zero. Which line writes the zeros?": (When(begins_rightly)),
}
CHECK = OnRanks(
    cases=calls,
    called=lambda call: f"shard_and_pad(tensor), with {in_call(call)}",
    given=lambda call: (whole(call),),
    caller=watched,
    looks=[
        Look(
            of=lambda seen: sorted({*seen.ops}),
            right=[],
            otherwise="Every rank has the whole tensor already. What is there to send?",
            came="rank {rank} called {value}",
            required="nothing is sent",
            words=", ".join,
        ),
        Look(
            of=lambda seen: seen.came["piece"],
            right=piece,
            mistakes=MISTAKES,
            otherwise="Which elements of the row are these, and how long must each piece be?",
            same=identical,
            words=in_full,
        ),
        Look(
            of=lambda seen: seen.came["beside"],
            right="",
            mistakes={
                "A slice is a view: it keeps all of the memory that it was cut from. What gives it "
                "memory of its own?": When(lambda seen: "bytes" in seen.value),
                "Nothing was copied here, so the piece is a view of the tensor. What if no zeros "
                "are needed, or there is one rank?": When(lambda seen: "lies" in seen.value),
                "The tensor is a parameter here, and the graph leads back to it. What takes a "
                "tensor out of the graph?": When(lambda seen: "graph" in seen.value),
            },
            otherwise="The caller makes parameters of the pieces and decides whether these get "
            "gradients. What is asked for here is a plain tensor.",
            came="the right piece, which {value}",
            required="a tensor with memory of its own, outside any graph",
            words=str,
        ),
    ],
    keeps="Which line changes it?",
    errors={
        "out of range": "Without zeros, 5 elements make three chunks for 4 ranks; and a tensor "
        "without dimensions has no shape[0]. Which of the two is it here?",
        "view size is not compatible": "view needs elements that are already contiguous in memory. "
        "Which other method flattens any tensor?",
        "invalid for input of size": "Without zeros, these elements do not divide into that many "
        "equal pieces.",
        "BFloat16": "NumPy knows no bfloat16. Which functions of torch do the same?",
        "dimension": "A tensor may have any number of dimensions, even none. Which method flattens "
        "any tensor?",
    },
    proves="pieces of 0 to 24 elements in 4 dtypes, at 1 to 4 ranks, in memory of their own",
)
