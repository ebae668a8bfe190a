"""Average the gradients in buckets: several in one all_reduce, because each one costs a round trip.

Your function is called between `backward` and `step`. Afterwards every `.grad` is, on every rank,
the mean over the ranks. A bucket is one tensor, in which gradients lie flat, one behind the other:

- Gradients are taken in the order in which backward makes them: the last parameter's first.
- A gradient joins the bucket of the one before it if both have the same dtype and the bucket then
  has `cap_bytes` bytes or fewer. Otherwise it begins the next bucket. So one that is larger than
  `cap_bytes` travels alone. (A bucket of DDP may go over its limit with the last gradient.)
- Each bucket is sent with one all_reduce, in this order, on all ranks. Nothing else is sent.

All ranks have the same model. A parameter without gradient has none on any rank, and stays so.
"""

import math
import time
from collections.abc import Callable
from itertools import product

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "A tensor knows its nbytes. What decides whether the next gradient still joins the bucket?",
    "torch.cat lays flat tensors one behind the other. The way back is split with the lengths of "
    "the gradients, view_as for the shape, and copy_ into the gradient itself.",
    "Begin a bucket with the first gradient that is left. While the next one has its dtype and "
    "fits under the cap, move it over. Send, write back, and begin again until none is left.",
]
FOR_ERRORS = {
    "non-empty list": "A bucket without gradients: what if the very first one is above the cap?",
    "NoneType": "A parameter without gradient: what is its .grad, and what then?",
    "assigned grad": "Has the part of the bucket the gradient's shape and dtype again?",
}
SIZES = (1, 2, 3, 4)
PAUSE = 0.05  # seconds that the others come later than rank 0: what is not waited for, shows
CAP = 40  # bytes
# From the end: one above the cap, a bucket that is just full, one not quite, one of another dtype.
SHAPES = [(2,), (3,), (11,), (1,), (3,), (), (3,), (2,), (4,), (2, 2), (3,), (4,), (2, 3), (9, 5)]
FROZEN, FLOAT64 = 6, (4, 5, 7)  # numbers of parameters; the others have float32


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
        mean = torch.cat([gradient.flatten() for gradient in bucket]) / dist.get_world_size()
        dist.all_reduce(mean)  # the sum of what was divided before
        for gradient, part in zip(bucket, mean.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))
    ### GIVEN
    # gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    # raise NotImplementedError  # TODO: your lines instead of this one
    ### END SOLUTION


def gradient_of(number: int, rank: int) -> Tensor:
    """What `rank` holds for the parameter of this number: equal ones nowhere."""
    dtype = torch.float64 if number in FLOAT64 else torch.float32
    counting = torch.arange(1, math.prod(SHAPES[number]) + 1, dtype=dtype) + 100 * number
    return counting.reshape(SHAPES[number]) * 2**rank


TAKEN = [gradient_of(number, 0) for number in range(len(SHAPES)) if number != FROZEN][::-1]


def averaged(bucketed_average: Callable, rank: int) -> list[Tensor | None]:
    """In a rank: copies of the gradients as the attempt leaves them."""
    model = nn.ParameterList(nn.Parameter(gradient_of(n, 0)) for n in range(len(SHAPES)))
    for number, parameter in enumerate(model):
        parameter.grad = gradient_of(number, rank)
    model[FROZEN].requires_grad, model[FROZEN].grad = False, None
    time.sleep(PAUSE if rank else 0)
    bucketed_average(model, CAP)
    at_once = [None if p.grad is None else p.grad.detach().clone() for p in model]
    time.sleep(2 * PAUSE if dist.get_world_size() > 1 and not rank else 0)
    return at_once


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Look at the buckets that went out, then at the gradients, on every rank at each size."""
    for world_size in sizes:
        answers, wire = attempt_on_ranks(attempt, averaged, each=range(world_size))
        for rank in range(world_size):
            rows = wire[wire["rank"] == rank]
            if len(rows) or world_size > 1:  # a rank alone has nobody to send to
                compare_buckets(rank, rows["bytes"].tolist(), sorted(set(rows["op"])))
        for rank, answer in enumerate(answers):
            compare_gradients(rank, answer, world_size)
    return f"gradients averaged in buckets of {REQUIRED} bytes, at 1 to 4 ranks"


def packed(gradients: list[Tensor], cap: Callable, mixed: bool = False) -> list[int]:
    """Bytes of each bucket, if the bucket b may have cap(b) bytes, and perhaps several dtypes."""
    buckets: list[list[Tensor]] = []
    for one in gradients:
        last = buckets[-1] if buckets else []
        fits = sum(gradient.nbytes for gradient in [*last, one]) <= cap([*last, one])
        if last and fits and (mixed or last[0].dtype == one.dtype):
            last.append(one)
        else:
            buckets.append([one])
    return [torch.cat([one.flatten() for one in bucket]).nbytes for bucket in buckets]


CAPS = {
    "These buckets begin with the first parameter. Where does backward begin?": lambda b: CAP,
    "Each gradient travels alone. Which of them could travel together?": lambda b: 0,
    "No bucket ends because it is full. What is cap_bytes for?": lambda b: math.inf,
    "May a bucket have cap_bytes exactly, or not?": lambda b: CAP - 1,
    "Too many bytes: do you look before a gradient joins, or after?": lambda b: CAP + b[-1].nbytes,
    "Do you look at bytes before one joins, or after?": lambda b: CAP - 1 + b[-1].nbytes,
    "Does cap_bytes limit numbers, or bytes?": lambda b: CAP * b[0].element_size(),
    "Has a number of float64 four bytes, too?": lambda b: CAP * b[0].element_size() / 4,
}
REQUIRED = packed(TAKEN, lambda b: CAP)


def compare_buckets(rank: int, sent: list[int], ops: list[str]) -> None:
    """Raise NotYet if this rank did not send the buckets of the task."""
    if sent != REQUIRED or ops != ["all_reduce"]:
        sizes = ", ".join(f"{g.nbytes}{' (float64)' * (g.element_size() == 8)}" for g in TAKEN)
        raise NotYet(
            f"bucketed_average(model, {CAP}); the gradients have {sizes} bytes, the last one first",
            f"rank {rank} sent {f'{sent} bytes, by ' + ' and '.join(ops) if ops else 'nothing'}",
            f"{REQUIRED} bytes on every rank, one all_reduce for each bucket",
            look_at_buckets(sent, ops),
        )


def look_at_buckets(sent: list[int], ops: list[str]) -> str:
    """The thought behind wrong buckets."""
    if sent and ops != ["all_reduce"]:
        return "Which collective gives every rank the sum, and needs no other one?"
    if sent == REQUIRED[: len(sent)]:
        return "Gradients are left. Which line sends the last bucket, and is it reached?"
    if len(sent) == 1:
        return "All are in one bucket. What do cap_bytes and the dtypes say to that?"
    with_frozen = [gradient_of(number, 0) for number in reversed(range(len(SHAPES)))]
    if sent == packed(with_frozen, lambda b: CAP):
        return "A parameter without gradient takes up room. It needs no zeros."
    for order, (thought, cap) in product((TAKEN, TAKEN[::-1]), CAPS.items()):
        if sent == packed(order, cap):
            return thought
        if sent == packed(order, cap, mixed=True):
            return "Two dtypes share a bucket, and cat widens one. What ends a bucket?"
    if sorted(sent) == sorted(REQUIRED):
        return "The sizes are right, the order is not. Which gradients are ready first?"
    if sorted(sent) == sorted(packed(sorted(TAKEN, key=Tensor.element_size), lambda b: CAP)):
        return "A bucket stayed open while another dtype was packed. What ends a bucket here?"
    right = next(i for i in range(len(sent)) if sent[: i + 1] != REQUIRED[: i + 1])
    return f"Number {right + 1} is the first that differs. What is in it, and what ends it?"


def compare_gradients(rank: int, answer: list, world_size: int) -> None:
    """Raise NotYet for the first parameter of this rank whose gradient is not the mean."""
    for number, gradient in enumerate(answer):
        own = [None if number == FROZEN else gradient_of(number, r) for r in range(world_size)]
        mean = None if number == FROZEN else sum(own) / world_size
        if not same(gradient, mean):
            raise NotYet(
                f"bucketed_average(model, {CAP}); gradient {number} of each rank: {in_words(own)}",
                f"{in_words(gradient)} on rank {rank}",
                f"{in_words(mean)} on every rank",
                look_at_gradient(gradient, mean, own, rank),
            )


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Equal up to rounding, or both None."""
    if one is None or other is None or one.shape != other.shape:
        return one is other
    return torch.allclose(one, other, equal_nan=True)


def look_at_gradient(gradient: Tensor | None, mean: Tensor | None, own: list, rank: int) -> str:
    """The thought behind a wrong gradient."""
    if mean is None:
        return "A parameter without gradient is passed over. It needs no zeros."
    if gradient is None:
        return "Where has it gone? Who sets .grad to None?"
    if gradient.shape != own[0].shape:
        return "In the bucket it was flat. Which shape must its part have in .grad?"
    typical = {
        "It is the rank's own. Is the mean written to .grad, and waited for?": own[rank],
        "Only this rank's part is in it. Who waits for the all_reduce?": own[rank] / len(own),
        "This is the sum over the ranks. By how much is a sum larger than a mean?": sum(own),
        "This is the mean, divided by the number of ranks once more.": mean / len(own),
        "Which part of which bucket is this parameter's? Is it so on all ranks?": gradient,
    }
    return next(thought for thought, value in typical.items() if same(gradient, value))
