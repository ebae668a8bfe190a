"""Give every rank the model of rank 0, in place.

Each rank has built the same model, and filled it differently. Your function is called once, on all
ranks, before the training. Afterwards the model is equal on all of them, bit for bit: every
parameter, a frozen one as well, and every buffer, such as BatchNorm's running mean and its counter,
has the value that rank 0 had. Only values change:

- The optimizer exists already and knows the parameters. So the model keeps its Parameters, and
  they, as well as the buffers, keep their memory: `data_ptr()` is the same as before.
- A parameter that wants a gradient still does, and a frozen one still does not.

How many messages that takes, and of which kind, is up to you. All buffers are persistent.
"""

import time
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "One of the collectives gives the numbers of one rank, its source, to all others. Who calls "
    "it, how often, and who is the source?",
    "model.parameters() and model.buffers() are two lists. Together they are the whole model, in "
    "the same order on all ranks.",
    "dist.broadcast fills the tensor that you hand to it, where that tensor lies. "
    "parameter.detach() is the same memory, of which autograd takes no notes.",
]

FOR_ERRORS = {
    "can't be cast": "BatchNorm's counter is an integer. Does a broadcast compute anything?",
    "leaf Variable": "A parameter is to be filled. How, so that autograd takes no notes of it?",
    "as parameter": "This puts another tensor in the parameter's place. Can it be filled instead?",
}
SIZES = (1, 2, 3, 4)
FROZEN = "inner.bias"
FILLED = (1, 2, 4, 8)  # rank r has rank 0's numbers times this: no mean, no sum is a rank's own
PAUSE = 0.05  # seconds that rank 0 comes later than the others: what is not waited for, shows
LATEST = 0.5  # seconds in which wrong values may still become right ones
LATE = (
    "The values still changed after your function had returned. Who waits for the collectives that "
    "it started?"
)
LOOK_AT_MEMORY = (
    "The optimizer, and whatever else holds the old tensor, will never see the new one. Where do "
    "the numbers that arrive go?"
)
LOOK_AT_FLAG = "Only numbers travel. Which line decides anew whether a gradient is wanted?"


def broadcast_parameters(model: nn.Module) -> None:
    """Fill every parameter and every buffer with rank 0's values, in place, on every rank."""
    ### BEGIN SOLUTION
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    ### END SOLUTION


class SmallModel(nn.Module):
    """A layer whose bias is frozen, BatchNorm with its buffers, and a layer of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.get_parameter(FROZEN).requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)
        self.outer = nn.Linear(3, 1, dtype=torch.float64)

    def content(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict([*self.named_parameters(), *self.named_buffers()])

    def filled_by(self, rank: int) -> dict[str, Tensor]:
        """What `rank` holds under each name: no number twice, and some need all of their bits."""
        values = {}
        for number, (name, tensor) in enumerate(self.content().items()):
            indices = torch.arange(tensor.numel()).reshape(tensor.shape)
            signs = 1 - 2 * (indices % 2)  # so that rank 0 has neither the largest nor the smallest
            more = {torch.float64: 0.1, torch.int64: 2**24}.get(tensor.dtype, 0)
            numbers = (indices + 10 * number + 1).to(tensor.dtype) + more
            values[name] = numbers * signs * FILLED[rank]
        return values


def before_and_after(broadcast_parameters: Any, rank: int) -> dict[str, Any]:
    """In a rank: by name, what is not as it was, and the values at once and a moment later."""
    model = SmallModel()
    for name, value in model.filled_by(rank).items():
        model.content()[name].data.copy_(value)
    before = {name: (one, one.detach(), one.requires_grad) for name, one in model.content().items()}
    if rank == 0:
        time.sleep(PAUSE)
    broadcast_parameters(model)
    at_once, end = values(model), time.monotonic() + LATEST
    while not_right(values(model)) and time.monotonic() < end:
        time.sleep(PAUSE)
    changes = {name: change(model.content().get(name), *was) for name, was in before.items()}
    return {"changes": changes, "at once": at_once, "later": values(model)}


def values(model: nn.Module) -> dict[str, Tensor]:
    """Copies of parameters and buffers, by name."""
    return {name: tensor.detach().clone() for name, tensor in model.content().items()}


def not_right(values: dict[str, Tensor]) -> set[str]:
    """The names under which there is something else than rank 0's value."""
    filled = SmallModel().filled_by(0)
    return {name for name, right in filled.items() if not same(values.get(name), right)}


def change(now: Tensor | None, was: Tensor, memory: Tensor, wants_gradient: bool) -> str:
    """What is different about a tensor, apart from its values; "" if nothing is."""
    if now is not was and isinstance(was, nn.Parameter):
        return "is another Parameter than before"
    if now is None or now.data_ptr() != memory.data_ptr():
        return "lies in other memory than before"
    if now.requires_grad != wants_gradient:
        return f"has requires_grad={now.requires_grad}"
    return ""


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare every parameter and buffer with rank 0's, on every rank, at each world size."""
    for size in sizes:
        answers, wire = attempt_on_ranks(attempt, before_and_after, each=range(size))
        for rank, answer in enumerate(answers):
            compare_answer(rank, answer, size, what_came(rank, wire))
    return (
        "every parameter and buffer has rank 0's values, bit for bit and in its old memory, at 1 "
        "to 4 ranks"
    )


def compare_answer(rank: int, answer: dict[str, Any], size: int, came: str) -> None:
    """Raise NotYet for the first tensor of this rank that is not as it must be."""
    filled = [SmallModel().filled_by(r) for r in range(size)]
    wrong = not_right(answer["at once"])
    for name, right in filled[0].items():
        held = ", ".join(f"{in_words(one[name])} on rank {r}" for r, one in enumerate(filled))
        called = f"broadcast_parameters(model), where {name} was {held}"
        if changed := answer["changes"][name]:
            raise NotYet(
                called,
                f"{name} {changed} on rank {rank}",
                "the same tensor as before: only its numbers change",
                LOOK_AT_FLAG if "requires_grad" in changed else LOOK_AT_MEMORY,
            )
        if name in wrong:
            value, later = answer["at once"][name], answer["later"][name]
            look = LATE if same(later, right) else look_at(name, value, rank, filled, wrong, came)
            words = in_words(value) if in_words(value) != in_words(right) else value.tolist()
            raise NotYet(called, f"{words} on rank {rank}", f"{in_words(right)} everywhere", look)


def same(one: Tensor | None, other: Tensor) -> bool:
    """Equal in dtype, shape, and every number."""
    return one is not None and one.dtype == other.dtype and torch.equal(one, other)


def what_came(rank: int, wire: pd.DataFrame) -> str:
    """Where to look if the whole model of this rank is as before."""
    if wire.empty:
        return "No rank has sent anything. Which tensors does your function find in the model?"
    if not wire["received"][wire["rank"] == rank].sum():
        return "Nothing came to this rank. Who sends to whom?"
    return "Something came to this rank, but not into its model. Which tensor was filled?"


def look_at(
    name: str, value: Tensor, rank: int, filled: list[dict], wrong: set[str], came: str
) -> str:
    """The thought behind a wrong value."""
    own = [one[name] for one in filled]
    if rank and same(value, own[rank]):
        buffers = set(dict(SmallModel().named_buffers()))
        if wrong == buffers:
            return f"{name} is a buffer, no parameter. Which of the model's lists holds it?"
        if FROZEN in wrong <= {FROZEN, *buffers}:
            return f"{name} is frozen: no step will ever make it equal. Who passes over it?"
        if wrong < filled[0].keys():
            return f"Other tensors have come to rank {rank}, {name} has not. Who passes over it?"
        return came
    sources = [r for r in range(len(own)) if same(value, own[r])]
    if sources:
        return f"These are the numbers of rank {sources[0]}. Who is the source, on every rank?"
    if value.shape == own[0].shape:
        total, value = sum(own).double(), value.double()
        if torch.allclose(value, own[0].double(), rtol=1e-3):
            return "This is nearly rank 0's value. In which dtype has it travelled?"
        for what, numbers in {"mean": total / len(own), "sum": total}.items():
            if torch.allclose(value, numbers):
                return f"This is the {what} over the ranks. Asked for are rank 0's own numbers."
    return "Which rank's numbers are in this tensor, and what has been calculated with them?"
