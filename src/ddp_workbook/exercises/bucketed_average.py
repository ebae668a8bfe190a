"""Average the gradients in buckets, several in one all_reduce: each call costs a round trip.

Your function is called on all ranks, between `backward` and `step`. Afterwards every `.grad` is the
mean over the ranks, on every rank. A bucket is one flat tensor that holds one or more gradients,
one after the other.

- Take the gradients in the order in which backward makes them: the last parameter's first.
- A gradient joins the bucket of the gradient before it if both have the same dtype and the bucket
  then has at most `cap_bytes` bytes. Otherwise it begins the next bucket. So a gradient that is
  larger than `cap_bytes` has a bucket to itself. (DDP is less strict: a bucket's last gradient may
  exceed the limit.)
- Send each bucket with one all_reduce, in this order, and send nothing else.
- A parameter without a gradient has none on any rank. It takes no room in a bucket, and its `.grad`
  stays None.
- From call to call, `cap_bytes` can change, and so can the parameters that have a gradient.
- Not every gradient is contiguous.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.exercises import Look, OnRanks, Seen, When
from ddp_workbook.exercises.judging.gradients import Gradients, mean, where_they_held

MINUTES = 20
HINTS = [
    "A tensor has nbytes. What decides whether the next gradient still joins the bucket?",
    "torch.cat joins flat tensors. For the way back, use split with the lengths of the gradients, "
    "view_as for the shape, and copy_ into the gradient itself.",
    "Begin a bucket with the first gradient that is left. While the next one has its dtype and "
    "fits under the cap, add it. Send the bucket, write it back, and begin again until no gradient "
    "is left.",
]


def bucketed_average(model: nn.Module, cap_bytes: int) -> None:
    """Replace each .grad by its mean over the ranks, in buckets of at most `cap_bytes` bytes."""
    ### BEGIN SOLUTION
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    while gradients:
        bucket = [gradients.pop(0)]  # whatever its size
        room, dtype = cap_bytes - bucket[0].nbytes, bucket[0].dtype
        while gradients and gradients[0].dtype == dtype and gradients[0].nbytes <= room:
            bucket.append(gradients.pop(0))
            room -= bucket[-1].nbytes
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


class Call(NamedTuple):
    """A cap, and the gradients of each rank, by parameter."""

    cap: int
    held: list[Gradients]

    @property
    def taken(self) -> list[Tensor]:
        """The gradients that there are, the last parameter's first."""
        return [one for one in reversed(self.held[0].values()) if one is not None]


def calls(size: int) -> list[Call]:
    """Two caps; in the last call another parameter has no gradient, and one rank an overflow."""
    return [
        Call(cap, [held(number, rank, without) for rank in range(size)])
        for number, (cap, without) in enumerate([(40, "p06"), (64, "p06"), (40, "p10")])
    ]


def held(call: int, rank: int, without: str) -> Gradients:
    """What `rank` holds: no sum and no mean is one of them. One of them is not contiguous."""
    own: Gradients = {}
    for number, (name, parameter) in enumerate(MODEL.items(), start=1):
        counting = torch.arange(parameter.numel(), dtype=parameter.dtype) + number + 0.3 + 50 * call
        own[name] = (counting * (-1) ** number * 3**rank).reshape(parameter.shape)
    own["p12"] = own["p12"].t().contiguous().t()
    if call == 2 and rank == 1:
        own["p01"][0] = torch.inf
    return own | {without: None}


def arguments(call: Call, rank: int) -> tuple[nn.Module, int]:
    """The model with the gradients of this rank, and the cap."""
    for name, gradient in call.held[rank].items():
        MODEL[name].grad = None if gradient is None else gradient.clone()
    return MODEL, call.cap


def packed(
    call: Call,
    limit: Callable[[list[Tensor]], float] | None = None,
    gradients: list[Tensor] | None = None,
    among: Callable = lambda buckets, one: buckets[-1:],
    mixed: bool = False,
    size_of: Callable[[Tensor], int] = lambda flat: flat.nbytes,
) -> list[int]:
    """Bytes of each bucket, if a bucket may have limit(bucket) bytes.

    `among` gives the buckets that a gradient may join; of `mixed` ones, whatever their dtype.
    """
    buckets: list[list[Tensor]] = []
    limit = limit or (lambda bucket: call.cap)
    for one in call.taken if gradients is None else gradients:
        for bucket in among(buckets, one):
            fits = sum(gradient.nbytes for gradient in [*bucket, one]) <= limit([*bucket, one])
            if fits and (mixed or bucket[0].dtype == one.dtype):
                bucket.append(one)
                break
        else:
            buckets.append([one])
    return [size_of(torch.cat([one.flatten() for one in bucket])) for bucket in buckets]


def total(case: list[Gradients], factor: float = 1) -> Gradients:
    """The sum over the ranks, times `factor`."""
    return {
        name: None if one is None else one * len(case) * factor for name, one in mean(case).items()
    }


def count_goes_on(call: Call) -> list[int]:
    """The buckets, if the count of bytes begins anew at a full one, but not at another dtype."""
    buckets, count, dtype = [], 0, None
    for one in call.taken:
        full = dtype == one.dtype and count + one.nbytes > call.cap
        if full or dtype != one.dtype:
            buckets.append(0)
        buckets[-1] += one.nbytes
        count, dtype = (0 if full else count) + one.nbytes, one.dtype
    return buckets


def in_float32(call: Call) -> list[int]:
    """The buckets, if each travels in a flat tensor of float32, whatever its dtype."""
    return packed(call, size_of=lambda flat: 4 * flat.numel())


def with_zeros(call: Call) -> list[Tensor]:
    """The gradients, and zeros where there is none."""
    given = [MODEL[n] if one is None else one for n, one in call.held[0].items()]
    return given[::-1]


def sent(seen: Seen) -> list[int]:
    """Bytes of each operation; a rank alone needs to send nothing."""
    alone = seen.size == 1 and not seen.wire
    return packed(seen.case) if alone else [row["bytes"] for row in seen.wire]


def is_a_multiple(seen: Seen) -> bool:
    """Whether the first gradient that is wrong is the mean times some number."""
    for name, right in seen.right.items():
        came = seen.value[name]
        if right is None or came is None or came.shape != right.shape or right.numel() < 2:
            continue  # a single number is a multiple of any other
        if not torch.allclose(came.double(), right.double()):
            ratios = came.double() / right.double()
            return bool(ratios.abs().min() > 0) and torch.allclose(ratios, ratios.flatten()[0])
    return False


def bytes_and_ops(seen: Seen) -> str:
    """What a rank has sent, in words."""
    ops = " and ".join(dict.fromkeys(seen.ops))
    return f"rank {seen.rank} sent {f'{seen.value} bytes, by {ops}' if ops else 'nothing'}"


def called(call: Call, name: str) -> str:
    """The call, and what it is about: one gradient, or the bytes of all."""
    if name:
        return f"bucketed_average(model, {call.cap}){where_they_held(call.held, name)}"
    each = [f"{one.nbytes}{' (float64)' * (one.element_size() == 8)}" for one in call.taken]
    sizes = f"the gradients have {', '.join(each)} bytes, the last one first"
    return f"bucketed_average(model, {call.cap}); {sizes}"


OTHERS = Look(
    of=lambda seen: sorted({*seen.ops} - {"all_reduce"}),
    right=[],
    otherwise="Which collective gives every rank the sum? No other one is needed.",
    came="rank {rank} called {value}",
    required="one all_reduce for each bucket, and nothing else",
)
BUCKETS = Look(
    of=sent,
    right=packed,
    mistakes={
        "Was a bucket sent that holds no gradient? See what happens when the very first gradient "
        "is above the cap.": When(lambda seen: 0 in seen.value),
        "All are in one bucket. What do cap_bytes and the dtypes require?": (
            lambda call: packed(call, lambda bucket: math.inf, mixed=True)
        ),
        "Each gradient travels alone. Which of them could travel together?": (
            lambda call: packed(call, lambda bucket: 0)
        ),
        "No bucket ends because it is full. What is cap_bytes for?": (
            lambda call: packed(call, lambda bucket: math.inf)
        ),
        "Buckets end before they are full. May a bucket have cap_bytes exactly?": (
            lambda call: packed(call, lambda bucket: call.cap - 1)
        ),
        "These buckets are too large. Do you compare with the cap before a gradient joins, or "
        "after?": lambda call: packed(call, lambda bucket: call.cap - 1 + bucket[-1].nbytes),
        "Does cap_bytes limit numbers, or bytes?": (
            lambda call: packed(call, lambda bucket: call.cap * bucket[0].element_size())
        ),
        "The buckets of float64 are too large. How many bytes has one of its numbers?": (
            lambda call: packed(call, lambda bucket: call.cap * bucket[0].element_size() / 4)
        ),
        "Buckets of float64 travel in half of their bytes. Which dtype has your flat tensor?": (
            in_float32
        ),
        "Two dtypes share a bucket, and cat widens one. What ends a bucket?": (
            lambda call: packed(call, mixed=True)
        ),
        "These buckets begin with the first parameter. Where does backward begin?": (
            lambda call: packed(call, gradients=call.taken[::-1])
        ),
        "A parameter without gradient takes up room. It needs no zeros.": (
            lambda call: packed(call, gradients=with_zeros(call))
        ),
        "A bucket stayed open while another dtype was packed. With which gradient alone may one "
        "share a bucket?": lambda call: packed(
            call, among=lambda buckets, one: [b for b in buckets if b[0].dtype == one.dtype][-1:]
        ),
        "A gradient has joined a bucket after the next one had begun. With which gradient alone "
        "may one share a bucket?": lambda call: packed(call, among=lambda buckets, one: buckets),
        "A bucket that begins because of its dtype ends too early. What is your count of bytes "
        "when it begins?": count_goes_on,
        "Gradients are left. Which line sends the last bucket, and is it reached?": When(
            lambda seen: seen.value == seen.right[: len(seen.value)]
        ),
        "The sizes are right, the order is not. Which gradients are ready first?": When(
            lambda seen: sorted(seen.value) == sorted(seen.right)
        ),
    },
    otherwise="Find the first bucket whose bytes differ. Which gradients are in it, and what ended "
    "it?",
    came=bytes_and_ops,
    required="{right} bytes on every rank, one all_reduce for each bucket",
)

GRADIENTS = Look(
    of=lambda seen: seen.came,
    right=lambda call: mean(call.held),
    mistakes={
        "A parameter without a gradient stays without one. It needs no zeros.": lambda call: {
            name: MODEL[name].detach() if one is None else one
            for name, one in mean(call.held).items()
        },
        "Where has the gradient gone? Which line sets .grad to None?": lambda call: dict.fromkeys(
            MODEL
        ),
        "It is the rank's own. Is the mean written to .grad?": lambda call, rank: call.held[rank],
        "This one is not contiguous. Does your line write into the gradient, or into a copy?": (
            lambda call, rank: mean(call.held) | {"p12": call.held[rank]["p12"]}
        ),
        "This is the sum over the ranks. By how much is a sum larger than a mean?": (
            lambda call: total(call.held)
        ),
        "This is the mean, divided by the number of ranks once more.": (
            lambda call: total(call.held, 1 / len(call.held) ** 2)
        ),
        "This is a multiple of the mean. By which number do you divide?": When(is_a_multiple),
        "In the bucket it was flat. Which shape must its part have in .grad?": lambda call: {
            name: one if one is None else one.flatten() for name, one in mean(call.held).items()
        },
    },
    otherwise="Which part of which bucket is this parameter's? Is it the same part on all ranks?",
)

# gloo's reader of a socket aborts if more bytes come than it expects, and can crash if fewer come.
UNLIKE = (
    "Buckets of different sizes met in one all_reduce, and gloo ended the process. Does every rank "
    "pack the same gradients in the same order?"
)
CHECK = OnRanks(
    cases=calls,
    called=called,
    given=arguments,
    observe=lambda _, model, cap: {n: p.grad for n, p in MODEL.items()},
    looks=[OTHERS, BUCKETS, GRADIENTS],
    keeps="Which tensors do you write into, the parameters or their gradients?",
    errors={
        "non-empty list": "A bucket without gradients: what if the very first one is above the "
        "cap?",
        "NoneType": "A parameter without gradient: what is its .grad, and what then?",
        "SIGABRT": UNLIKE,
        "SIGSEGV": UNLIKE,
        "assigned grad": "Has the part of the bucket the gradient's shape and dtype again?",
        "view size is not compatible": "One gradient is not contiguous. Which other method makes "
        "it flat?",
    },
    proves="gradients averaged in the buckets of the task, with caps of 40 and 64 bytes, at 1 to 4 "
    "ranks",
)
