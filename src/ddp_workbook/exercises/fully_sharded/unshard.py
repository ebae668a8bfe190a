"""Rebuild a tensor from the shards of all ranks.

`shard_and_pad` has flattened a tensor, padded it with zeros at the end, and split it into equal
shards, one for each rank. Your function is called on every rank with the rank's shard and the
tensor's original shape. On every rank it returns the full tensor: in that shape, in the dtype of
the shard, without padding.

- The ranks make one all-gather together, in any of its forms, and send nothing else. A single rank
  needs none.
- The tensor may have no dimensions or no elements, and some shards may hold padding only. A zero
  may also be an element.
- `shard` stays unchanged, and so does the result of an earlier call.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, body, edit, in_words
from ddp_workbook.judging.comm_comparisons import calls_only
from ddp_workbook.judging.shards import CASES, filled_memory, full_tensor
from ddp_workbook.judging.shards import shard as shard_of

MINUTES = 6
HINTS = [
    "Every rank needs all shards. Which collective gives them to it, and in which order do they "
    "come?",
    "One after the other, the shards make the padded row. Where in it is the padding, and how many "
    "elements does a tensor of this shape have?",
    "shape.numel() counts the elements; a slice drops what follows them, and reshape does the "
    "rest. The tensors that all_gather fills must have the dtype of the shard.",
]


def unshard(shard: Tensor, shape: torch.Size) -> Tensor:
    """Return the full tensor of this shape, made from the `shard` [n] of each rank."""
    ### BEGIN SOLUTION
    shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, shard)
    return torch.cat(shards)[: shape.numel()].reshape(shape)
    ### END SOLUTION


def call_with_filled_memory(function: Callable, own: Tensor, shape: torch.Size) -> Tensor:
    """Call it where uninitialized memory shows in the result."""
    with filled_memory():
        return function(own, shape)


ROW, CUT = "torch.cat(shards)", "[: shape.numel()]"
CHECK = DistributedCheck(
    cases=CASES,
    call_text=lambda call: (
        f"unshard(shard, {torch.Size(call.shape)}), with the shards "
        + " ".join(in_words(shard_of(call, rank)) for rank in range(call.ranks))
        + f" in {call.dtype}"
    ),
    make_args=lambda call, rank: (shard_of(call, rank), torch.Size(call.shape)),
    caller=call_with_filled_memory,
    compare={
        "operations": calls_only(
            "all_gather",
            "all_gather_into_tensor",
            required="one all-gather, and nothing else",
            hint="Which single collective gives every rank the shards of all ranks, without "
            "adding up, and without a call for each rank?",
        ),
        "tensor": Comparison(
            "Follow one element: where is it in the shard, in the row, and in what you return?",
            lambda call: full_tensor(call).detach().contiguous(),
        ),
    },
    mistakes={
        "The numbers are right, the dtype is not. Which line decides in which dtype they come "
        "back?": [edit(CUT, f"{CUT}.{dtype}()") for dtype in ("float", "double")],
        "This is the row with its padding. How many elements does a tensor of this shape have?": (
            edit(CUT + ".reshape(shape)", "")
        ),
        "The elements are right, the shape is not. Which argument gives the shape?": edit(
            ".reshape(shape)", ""
        ),
        "This is rank {rank}'s own shard. How do the others' shards get here?": body(
            "return shard.clone()"
        ),
        "Rank {rank}'s own shard is in every place. Into which tensors does the collective "
        "write?": edit(ROW, "shard.repeat(len(shards))"),
        "The last rank's shard is in every place. Does your list hold several tensors, or one "
        "tensor several times?": edit(ROW, "shards[-1].repeat(len(shards))"),
        "Rank 0's shard is in every place. Where are the others?": edit(
            ROW, "shards[0].repeat(len(shards))"
        ),
        "The shards are interleaved. A shard is one block of the row: along which dimension are "
        "they joined?": edit(ROW, "torch.stack(shards, dim=1).flatten()"),
        "The shards come in reverse order. Which is the first one?": edit(
            ROW, "torch.cat(shards[::-1])"
        ),
        "The elements were cut off at the front of the row. Where is the padding?": edit(
            CUT, "[-shape.numel() :]"
        ),
        "All zeros are gone. A zero may be an element: what else tells where the padding begins?": (
            edit(
                "return " + ROW + CUT + ".reshape(shape)",
                "row = torch.cat(shards)\n    return row[row != 0]",
            )
        ),
    },
    max_collectives=1,
    unchanged_hint="Which line changes it?",
    errors={
        "too many collectives": "Which of these is not needed? The shards are equally long, and "
        "every rank knows the shape.",
        "invalid for input of size": "Does what you reshape have as many elements as the shape? "
        "Look for padding that is left, and for elements that were taken for padding.",
        "different dtypes": "Which dtype do the tensors that the collective fills have, and which "
        "one does the shard have?",
        "invalid tensor size": "Which shape must a tensor have to take the shard of a rank?",
        "tensor list": "How many tensors does the list to be filled hold? It needs one for each "
        "rank.",
        "non-empty": "A tensor without elements has shards too. How long are they?",
    },
    on_pass="tensors of 0 to 24 elements in 4 dtypes, gathered at 1 to 4 ranks, with one "
    "all-gather",
)
