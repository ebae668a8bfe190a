"""Average the gradients in buckets, several in one all_reduce: each call costs a round trip.

Your function is called on all ranks, between `backward` and `step`. Afterwards every `.grad` is
the mean over the ranks, on every rank. A bucket is one flat tensor that holds one or more
gradients, one after the other.

- Take the gradients in the order in which backward makes them: the last parameter's first.
- A gradient joins the bucket of the gradient before it if both have the same dtype and the bucket
  then has at most `cap_bytes` bytes. Otherwise it begins the next bucket. So a gradient that is
  larger than `cap_bytes` has a bucket to itself. (DDP is less strict: a bucket's last gradient
  may take it beyond `bucket_cap_mb`.)
- Send each bucket with one all_reduce, in this order, and send nothing else.
- A parameter without a gradient has none on any rank. It takes no room in a bucket, and its
  `.grad` stays None.
- From call to call, `cap_bytes` can change, and so can the parameters that have a gradient.
- Not every gradient is contiguous.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.judging import Comparison, DistributedCheck, Edit, Observation, edit
from ddp_workbook.judging.comm_comparisons import ONLY_ALL_REDUCE
from ddp_workbook.judging.gradients import (
    WEIGHTS_UNCHANGED,
    Gradients,
    describe_gradients,
    make_gradients,
    mean,
    set_gradients,
    weights_and_gradients,
)

MINUTES = 20
HINTS = [
    "A tensor has nbytes. What decides whether the next gradient still joins the bucket?",
    "torch.cat joins flat tensors. For the way back, use split with the lengths of the gradients, "
    "view_as for the shape, and copy_ into the gradient itself.",
    "Plan before you send. Which two conditions begin a new bucket, and what must you remember "
    "about the current one to check them?",
]


def bucketed_average(model: nn.Module, cap_bytes: int) -> None:
    """Replace each .grad by its mean over the ranks, in buckets of at most `cap_bytes` bytes."""
    ### BEGIN SOLUTION
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    buckets, room, dtype = [], cap_bytes, None
    for gradient in gradients:
        if gradient.dtype != dtype or gradient.nbytes > room:
            buckets.append([])
            room, dtype = cap_bytes, gradient.dtype
        buckets[-1].append(gradient)
        room -= gradient.nbytes
    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket]) / dist.get_world_size()
        dist.all_reduce(flat)  # the sum of what was divided before
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
    ### GIVEN
    # gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    # raise NotImplementedError  # TODO: your lines instead of this one
    ### END SOLUTION


# From the end, with a cap of 40 bytes: one above it, a bucket that is just full, one that is not,
# and float64 between float32.
SHAPES = [(2,), (3,), (11,), (1,), (3,), (), (3,), (2,), (4,), (2, 2), (3,), (4,), (2, 3), (9, 5)]
FLOAT64 = (4, 5, 7)
MODEL = nn.ParameterDict(  # one for all calls
    {
        f"p{number:02}": torch.zeros(shape, dtype=torch.float64 if number in FLOAT64 else None)
        for number, shape in enumerate(SHAPES)
    }
)


class Step(NamedTuple):
    """A cap, the bytes of each bucket under it, and the gradients of each rank."""

    cap: int
    buckets: list[int]
    gradients: list[Gradients]


def calls(size: int) -> list[Step]:
    """Two caps; in the last call another parameter has no gradient, and one rank an overflow."""
    plans = [
        (40, "p06", [180, 40, 28, 16, 24, 24, 4, 44, 20]),
        (64, "p06", [180, 52, 32, 48, 60, 8]),
        (40, "p10", [180, 40, 32, 16, 12, 32, 4, 44, 20]),
    ]
    return [
        Step(cap, buckets, [gradients_of(number, rank, missing) for rank in range(size)])
        for number, (cap, missing, buckets) in enumerate(plans)
    ]


def gradients_of(call: int, rank: int, missing: str) -> Gradients:
    """What `rank` holds: one gradient is not contiguous, one may overflow, and one is missing."""
    own = make_gradients(MODEL, call, rank)
    own["p12"] = own["p12"].t().contiguous().t()
    if call == 2 and rank == 1:
        own["p01"][0] = torch.inf
    return own | {missing: None}


def make_args(call: Step, rank: int) -> tuple[nn.Module, int]:
    """The model with the gradients of this rank, and the cap."""
    set_gradients(MODEL, call.gradients[rank], rank)
    return MODEL, call.cap


def bucket_bytes(obs: Observation) -> list[int]:
    """Bytes of each operation; a rank alone needs to send nothing."""
    alone = obs.size == 1 and not obs.communication
    return obs.case.buckets if alone else [row["bytes"] for row in obs.communication]


def call_text(call: Step, name: str) -> str:
    """The call, and what it is about: one gradient, or the bytes of all."""
    if name:
        return f"bucketed_average(model, {call.cap}){describe_gradients(call.gradients, name)}"
    gradients = [
        gradient for gradient in reversed(call.gradients[0].values()) if gradient is not None
    ]
    texts = [
        f"{gradient.nbytes}{' (float64)' if gradient.element_size() == 8 else ''}"
        for gradient in gradients
    ]
    sizes = f"the gradients have {', '.join(texts)} bytes, the last one first"
    return f"bucketed_average(model, {call.cap}); {sizes}"


FULL = "gradient.nbytes > room"
NEW_BUCKET = f"gradient.dtype != dtype or {FULL}"
COPY_BACK = "gradient.copy_(part.view_as(gradient))"


def join_any_of(candidates: str) -> Edit:
    """A mistake in the choice of the buckets that a gradient may join."""
    return edit(
        f"        if {NEW_BUCKET}:",
        f"        fitting = [b for b in {candidates} if b[0].dtype == gradient.dtype\n"
        "            and sum(g.nbytes for g in [*b, gradient]) <= cap_bytes]\n"
        "        if not fitting:",
        "buckets[-1].append(gradient)",
        "(fitting or buckets[-1:])[0].append(gradient)",
    )


CHECK = DistributedCheck(
    cases=calls,
    call_text=call_text,
    make_args=make_args,
    observe=weights_and_gradients,
    compare={
        "operations": ONLY_ALL_REDUCE,
        "bytes": Comparison(
            "Find the first bucket whose bytes differ. Which gradients are in it, and "
            "what ended it?",
            lambda call: call.buckets,
            select=bucket_bytes,
            actual="rank {rank} sent {value} bytes",
            required="{expected} bytes on every rank, one all_reduce for each bucket",
        ),
        "weight": WEIGHTS_UNCHANGED,
        "gradient": Comparison(
            "Which part of which bucket is this parameter's, and by what is it divided? "
            "Is it the same part on all ranks?",
            lambda call: mean(call.gradients),
        ),
    },
    mistakes={
        "Was a bucket sent that holds no gradient? See what happens when the very first gradient "
        "is above the cap.": edit(
            "[], cap_bytes, None",
            "[[]], cap_bytes, gradients[0].dtype",
            "torch.cat([",
            "torch.cat([gradients[0].flatten()[:0]] + [",
        ),
        "Gradients are left. Which line sends the last bucket, and is it reached?": edit(
            "in buckets:", "in buckets[:-1]:"
        ),
        "The sizes are right, the order is not. Which gradients are ready first?": edit(
            "in buckets:", "in buckets[::-1]:"
        ),
        "No bucket ends because it is full. What is cap_bytes for?": [
            edit(NEW_BUCKET, "not buckets"),
            edit(FULL, "False"),
        ],
        "Each gradient travels alone. Which of them could travel together?": edit(
            NEW_BUCKET, "True"
        ),
        "Buckets end before they are full. May a bucket have cap_bytes exactly?": edit(
            FULL, "gradient.nbytes >= room"
        ),
        "These buckets are too large. Do you compare with the cap before a gradient joins, or "
        "after?": edit(FULL, "room <= 0"),
        "cap_bytes limits bytes. How many bytes has a number of float32, and one of float64?": [
            edit(FULL, f"{size} > room", "room -= gradient.nbytes", f"room -= {size}")
            for size in ("gradient.numel()", "gradient.numel() * 4")
        ],
        "Buckets of float64 travel in half of their bytes. Which dtype has your flat tensor?": edit(
            "gradient.flatten()", "gradient.flatten().float()"
        ),
        "Two dtypes share a bucket, and cat widens one. What ends a bucket?": edit(
            "gradient.dtype != dtype", "not buckets"
        ),
        "These buckets begin with the first parameter. Where does backward begin?": edit(
            "reversed(list(model.parameters()))", "model.parameters()"
        ),
        "A parameter without a gradient stays without one. It needs no zeros, neither in a bucket "
        "nor in .grad.": [
            edit(
                "[p.grad for",
                "[p.detach() * 0 if p.grad is None else p.grad for",
                " if p.grad is not None",
                "",
            ),
            edit(
                "    for bucket in buckets:",
                "    for p in model.parameters():\n        p.grad = p.detach() * 0 if p.grad is "
                "None else p.grad\n    for bucket in buckets:",
            ),
        ],
        "A gradient has joined a bucket after the next one had begun. With which gradient alone "
        "may one share a bucket?": [
            join_any_of("buckets"),
            join_any_of("[b for b in buckets if b[0].dtype == gradient.dtype][-1:]"),
        ],
        "This is the sum over the ranks. By which number do you divide?": edit(
            " / dist.get_world_size()", ""
        ),
        "It is the rank's own. Is the mean written to .grad?": edit(
            COPY_BACK, "gradient = part.view_as(gradient)"
        ),
        "This one is not contiguous. Does your line write into the gradient, or into a copy?": edit(
            COPY_BACK, "gradient.reshape(-1).copy_(part)"
        ),
        "In the bucket it was flat. Which shape must its part have in .grad?": edit(
            COPY_BACK, "gradient.data = part"
        ),
    },
    errors={
        "non-empty list": "A bucket without gradients: what if the very first one is above the "
        "cap?",
        "NoneType": "A parameter without gradient: what is its .grad, and what then?",
        # gloo aborts if more bytes come than it expects, and can crash if fewer come.
        **dict.fromkeys(
            ("SIGABRT", "SIGSEGV"),
            "Buckets of different sizes met in one all_reduce, and gloo ended the process. Does "
            "every rank pack the same gradients in the same order?",
        ),
        "assigned grad": "Has the part of the bucket the gradient's shape and dtype again?",
    },
    on_pass="gradients averaged in the buckets of the task, with caps of 40 and 64 bytes, at 1 to "
    "4 ranks",
)
