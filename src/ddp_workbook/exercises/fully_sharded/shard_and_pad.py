"""Split a tensor into equal shards, and keep this rank's shard.

Every rank calls your function with the same tensor. Flatten it, append as few zeros as it takes to
split it into equal shards, one for each rank, and return shard r on rank r. With 10 elements on 4
ranks, a shard has 3 elements: rank 0 keeps the first three, and rank 3 keeps the last one and two
zeros.

- The shard is one-dimensional and has the dtype of the tensor.
- The caller deletes the tensor afterwards to save memory. The shard therefore has memory of its
  own, no more than its elements need.
- `tensor` may be a parameter. The shard is not part of its graph and requires no gradient.
- `tensor` may have any shape, fewer elements than there are ranks, or no elements at all. It may be
  a view that is not contiguous.
- Nothing is sent, and `tensor` stays unchanged.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddp_workbook.judging import Comparison, DistributedCheck, body, edit, in_words
from ddp_workbook.judging.comm_comparisons import calls_only
from ddp_workbook.judging.shards import CASES, filled_memory, full_tensor, shard

MINUTES = 6
HINTS = [
    "How long is a shard when 4 ranks share 10 elements? Is the quotient rounded up or down, and "
    "how many zeros does that take in all?",
    "Rank r's shard is a slice of the padded row. How much memory does a slice of a tensor keep "
    "alive?",
    "F.pad and new_zeros both make zeros. A slice is a view; clone gives it memory of its own. "
    "What takes a tensor out of autograd's graph?",
]


def shard_and_pad(tensor: Tensor) -> Tensor:
    """Return this rank's shard of `tensor` (any shape): [n], with the same n on every rank."""
    ### BEGIN SOLUTION
    flat = tensor.detach().flatten()
    ranks = dist.get_world_size()
    padding = flat.new_zeros(-len(flat) % ranks)
    length = (len(flat) + len(padding)) // ranks
    start = dist.get_rank() * length
    return torch.cat([flat, padding])[start : start + length].clone()  # a view would keep it all
    ### END SOLUTION


def call_and_observe(function: Callable, tensor: Tensor) -> dict[str, Any]:
    """Call it; return the shard, and what it keeps alive."""
    with filled_memory():
        returned = function(tensor)
    if not isinstance(returned, Tensor):
        return {"shard": returned}
    memory = returned.untyped_storage()
    is_view = memory.data_ptr() == tensor.untyped_storage().data_ptr()
    spare = memory.nbytes() if is_view else max(0, memory.nbytes() - returned.nbytes)
    return {
        "shard": returned,
        "bytes that the shard keeps besides its own": spare,
        "the shard requires a gradient": returned.requires_grad,
    }


FLAT, SLICE = "tensor.detach().flatten()", "[start : start + length]"
ZEROS, LENGTH = "-len(flat) % ranks", "(len(flat) + len(padding)) // ranks"
WHOLE_ROWS = """
rows, ranks = tensor.detach().reshape(tensor.shape or (1,)), dist.get_world_size()
length = -(-len(rows) // ranks)
rows = torch.cat([rows, rows.new_zeros(length * ranks - len(rows), *rows.shape[1:])])
return rows[dist.get_rank() * length :][:length].clone()"""
ANY_SHAPE = (
    "A tensor may have any number of dimensions, even none. Which method flattens any tensor?"
)
CHECK = DistributedCheck(
    cases=CASES,
    call_text=lambda call: (
        f"shard_and_pad(tensor), with a {call.dtype} tensor of shape {call.shape}"
        + (f", {call.kind}" if call.kind else "")
        + f": {in_words(full_tensor(call))}"
    ),
    make_args=lambda call: (full_tensor(call),),
    caller=call_and_observe,
    compare={
        "operations": calls_only(
            required="nothing is sent",
            hint="Every rank has the full tensor already. What is there to send?",
        ),
        "shard": Comparison(
            "Which elements of the row are these, and how long must each shard be?", shard
        ),
        "bytes that the shard keeps besides its own": Comparison(
            "A slice is a view: it keeps all of the memory that it was cut from, even the tensor's "
            "own if nothing was copied. What gives it memory of its own?",
            0,
        ),
        "the shard requires a gradient": Comparison(
            "The caller makes parameters of the shards. What is asked for is a plain tensor: what "
            "takes it out of the graph of `tensor`?",
            False,
        ),
    },
    mistakes={
        "This is the whole row, on every rank. Which part of it is rank {rank}'s?": [
            body("return tensor.detach().flatten().clone()"),
            edit(SLICE, ""),
        ],
        "The elements are right. Which line decides in which dtype the zeros, or the row, are "
        "made? And how many dimensions does a shard have?": [
            edit("flat.new_zeros", "torch.zeros"),
            edit(FLAT, f"{FLAT}.float()"),
            edit(".clone()", ".clone()[None]"),
        ],
        "This is rank 0's shard on every rank. Where does the rank come in?": edit(
            "dist.get_rank()", "0"
        ),
        "The shard has only the elements that were left for it. Where are the zeros that make all "
        "shards equally long?": edit(ZEROS, "0", LENGTH, "-(-len(flat) // ranks)"),
        "The elements are spread as evenly as possible. Where in the row do the zeros belong, and "
        "do they come before the cut or after?": [
            body("""
                row = tensor.detach().flatten()
                return row.tensor_split(dist.get_world_size())[dist.get_rank()].clone()
            """),
            body("""
                row, ranks = tensor.detach().flatten(), dist.get_world_size()
                own = row.tensor_split(ranks)[dist.get_rank()]
                return torch.cat([own, own.new_zeros(-(-len(row) // ranks) - len(own))])
            """),
        ],
        "The elements are dealt out like cards. A shard is one block of the row.": edit(
            SLICE, "[dist.get_rank() :: ranks]"
        ),
        "Elements are missing: the remainder of the division is on no rank. Was the length rounded "
        "up or down?": edit(ZEROS, "0"),
        "The last shard takes all that is left, and is longer than the others. What makes the "
        "shards equally long?": edit(
            ZEROS, "0", SLICE, "[start : None if dist.get_rank() == ranks - 1 else start + length]"
        ),
        "There are more zeros than needed. How many are needed if the number of elements is "
        "already a multiple of the number of ranks?": edit(ZEROS, "ranks - len(flat) % ranks"),
        "The zeros come before the elements. Where do they belong?": edit(
            "[flat, padding]", "[padding, flat]"
        ),
        "What follows the elements is not zero. Which line writes the zeros?": edit(
            "new_zeros", "new_empty"
        ),
        "These are whole rows of the tensor. What comes first, flattening or the cut?": [
            body(WHOLE_ROWS),
            body(WHOLE_ROWS + ".flatten()"),
        ],
        "This tensor is not contiguous, and these are its elements as they lie in memory. In which "
        "order does flatten take them?": edit(
            FLAT, "tensor.detach().as_strided([tensor.numel()], [1])"
        ),
    },
    unchanged_hint="Which line changes it?",
    errors={
        "out of range": "Without zeros, 5 elements make three chunks for 4 ranks; and a tensor "
        "without dimensions has no shape[0]. Which of the two is it here?",
        "invalid for input of size": "Without zeros, these elements do not divide into that many "
        "equal shards.",
        "dimension": ANY_SHAPE,
        "of a 0-d tensor": ANY_SHAPE,
    },
    on_pass="shards of 0 to 24 elements in 4 dtypes, at 1 to 4 ranks, in memory of their own",
)
