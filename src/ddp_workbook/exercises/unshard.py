"""Rebuild a tensor from the pieces of all ranks.

`shard_and_pad` has flattened a tensor, padded it with zeros at the end, and cut it into equal
pieces, one for each rank. Your function is called on every rank with the rank's piece and the
tensor's original shape. On every rank it returns the whole tensor: in that shape, in the dtype of
the piece, without padding.

- The ranks make one all-gather together, in any of its forms, and send nothing else. A single rank
  needs none.
- The tensor may have no dimensions or no elements, and some pieces may hold padding only. A zero
  may also be an element.
- `piece` stays unchanged, and so does the result of an earlier call.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ddp_workbook.exercises import Look, NotYet, OnRanks, Seen, When, body, edit, in_words
from ddp_workbook.exercises.judging.pieces import calls, filled_memory, in_full, whole
from ddp_workbook.exercises.judging.pieces import piece as piece_of

MINUTES = 6
HINTS = [
    "Every rank needs all pieces. Which collective gives them to it, and in which order do they "
    "come?",
    "One after the other, the pieces make the padded row. Where in it is the padding, and how many "
    "elements does a tensor of this shape have?",
    "shape.numel() counts the elements; a slice drops what follows them, and reshape does the "
    "rest. The tensors that all_gather fills must have the dtype of the piece.",
]


def unshard(piece: Tensor, shape: torch.Size) -> Tensor:
    """Return the whole tensor of this shape, made from the `piece` [n] of each rank."""
    ### BEGIN SOLUTION
    pieces = [torch.empty_like(piece) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)[: shape.numel()].reshape(shape)
    ### END SOLUTION


def called_with_filled_memory(function: Callable, own: Tensor, shape: torch.Size) -> Tensor:
    """Call it where uninitialized memory shows in the result, which is a plain tensor."""
    with filled_memory():
        returned = function(own, shape)
    if isinstance(returned, DTensor):
        raise NotYet(
            "unshard(piece, shape)",
            f"a DTensor with {in_words(returned.to_local())} on rank {dist.get_rank()}",
            "a plain tensor with all elements, on every rank",
            "Which method of a DTensor returns the whole tensor as a plain one?",
        )
    return returned


def same_numbers(seen: Seen) -> bool:
    """Whether it is the right tensor except for its dtype."""
    value = seen.value
    same = isinstance(value, Tensor) and value.shape == seen.right.shape
    return same and torch.allclose(value.double(), seen.right.double(), rtol=1e-2)


def has_own_elements(seen: Seen) -> bool:
    """Whether nothing was sent, and this rank's own elements are in their place."""
    if seen.wire or seen.size == 1 or not isinstance(seen.value, Tensor):
        return False
    own = piece_of(seen.case, seen.rank)
    here = seen.value.flatten()[seen.rank * len(own) :][: len(own)]
    return len(here) > 0 and torch.equal(here, own[: len(here)])


GATHER, ROW, CUT = "dist.all_gather(pieces, piece)", "torch.cat(pieces)", "[: shape.numel()]"
CHECK = OnRanks(
    cases=calls,
    called=lambda call: (
        f"unshard(piece, {torch.Size(call.shape)}), with the pieces "
        + " ".join(in_words(piece_of(call, rank)) for rank in range(call.ranks))
        + f" in {call.dtype}"
    ),
    given=lambda call, rank: (piece_of(call, rank), torch.Size(call.shape)),
    caller=called_with_filled_memory,
    looks=[
        Look(
            of=lambda seen: sorted({*seen.ops} - {"all_gather", "all_gather_into_tensor"}),
            right=[],
            mistakes={
                "A sum over zeros puts every number into its place, but costs as much as two "
                "all-gathers. Which collective moves pieces without adding?": (
                    When(lambda seen: "all_reduce" in seen.ops)
                ),
                "After gather, only one rank has the pieces. Which collective gives them to "
                "all?": When(lambda seen: "gather" in seen.ops),
                "One broadcast for each rank takes as many collectives as there are ranks. Which "
                "single collective does the same?": When(lambda seen: "broadcast" in seen.ops),
            },
            otherwise="Which collective gives every rank the pieces of all ranks? It is the only "
            "one needed.",
            actual="rank {rank} called {value}",
            required="one all-gather, and nothing else",
            words=", ".join,
        ),
        Look(
            right=lambda call: whole(call).detach().contiguous(),
            mistakes={
                "The numbers are right, the dtype is not. Which line decides in which dtype they "
                "come back?": When(same_numbers),
                "Rank {rank}'s own elements are in their place, and nothing was sent. Which "
                "collective brings the others'?": When(has_own_elements),
            },
            otherwise="Follow one element: where is it in the piece, in the row, and in what you "
            "return?",
            words=in_full,
        ),
    ],
    mistakes={
        "This is the row with its padding. How many elements does a tensor of this shape have?": (
            edit(CUT + ".reshape(shape)", "")
        ),
        "The elements are right, the shape is not. Which argument gives the shape?": edit(
            ".reshape(shape)", ""
        ),
        "This is rank {rank}'s own piece. How do the others' pieces get here?": body(
            "return piece.clone()"
        ),
        "Rank {rank}'s own piece is in every place. Into which tensors does the collective "
        "write?": edit(ROW, "piece.repeat(len(pieces))"),
        "The last rank's piece is in every place. Does your list hold several tensors, or one "
        "tensor several times?": edit(ROW, "pieces[-1].repeat(len(pieces))"),
        "Rank 0's piece is in every place. Where are the others?": edit(
            ROW, "pieces[0].repeat(len(pieces))"
        ),
        "The pieces are interleaved. A piece is one block of the row: along which dimension are "
        "they joined?": edit(ROW, "torch.stack(pieces, dim=1).flatten()"),
        "The pieces come in reverse order. Which is the first one?": edit(
            ROW, "torch.cat(pieces[::-1])"
        ),
        "The elements were cut off at the front of the row. Where is the padding?": edit(
            CUT, "[-shape.numel() :]"
        ),
        "All zeros are gone. A zero may be an element: what else tells where the padding begins?": (
            edit(
                "return " + ROW + CUT + ".reshape(shape)",
                "row = torch.cat(pieces)\n    return row[row != 0]",
            )
        ),
    },
    most=1,
    too_much="Which of these is not needed? The pieces are equally long, and every rank knows "
    "the shape.",
    keeps="Which line changes it?",
    errors={
        "invalid for input of size": "Does what you reshape have as many elements as the shape? "
        "Look for padding that is left, and for elements that were taken for padding.",
        "different dtypes": "Which dtype do the tensors that the collective fills have, and which "
        "one does the piece have?",
        "invalid tensor size": "Which shape must a tensor have to take the piece of a rank?",
        "tensor list": "How many tensors does the list to be filled hold? It needs one for each "
        "rank.",
        "non-empty": "A tensor without elements has pieces too. How long are they?",
    },
    proves="tensors of 0 to 24 elements in 4 dtypes, whole again at 1 to 4 ranks, with one "
    "all-gather",
)
