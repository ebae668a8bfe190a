"""Known gradients on every rank, for exercises that replace them by their mean over the ranks."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ddp_workbook.exercises.judging.check import Look, Seen
from ddp_workbook.exercises.judging.unordered import Unordered
from ddp_workbook.exercises.judging.values import in_words

Gradients = dict[str, Any]  # by parameter: its gradient; None for no gradient


def held(model: nn.Module, call: int, rank: int) -> Gradients:
    """What `rank` holds before a call: tenths of both signs, different in each call and rank."""
    random = torch.Generator().manual_seed(10 * call + rank)
    return {
        name: torch.randint(-99, 99, one.shape, generator=random).to(one.dtype) / 10
        for name, one in model.named_parameters()
    }


def mean(held: Sequence[Gradients]) -> Gradients:
    """The mean over the ranks."""
    return {
        name: None if one is None else sum(own[name] for own in held) / len(held)
        for name, one in held[0].items()
    }


def give(model: nn.Module, gradients: Gradients, rank: int) -> None:
    """Set the gradients, as new tensors, and weights that differ between ranks."""
    Unordered.mixed = True  # the hash of a parameter depends on the process
    for name, parameter in model.named_parameters():
        parameter.data.fill_(rank)
        parameter.grad = None if gradients[name] is None else gradients[name].clone()


def weights_and_gradients(_: None, model: nn.Module, *rest: object) -> dict[str, dict]:
    """The weights and gradients of the model after a call."""
    named = dict(model.named_parameters())
    return {"weights": named, "gradients": {name: one.grad for name, one in named.items()}}


WEIGHTS_STAY = Look(
    of=lambda seen: seen.actual["weights"],
    otherwise="Which tensors do you write into, the parameters or their gradients?",
    actual="the weight {part} is {value} {where}",
    required="{right} there, as before: only .grad changes",
)


def is_a_multiple(seen: Seen) -> bool:
    """Whether all gradients are the mean, times one number that is neither 0 nor 1."""
    actual, right = (
        [x for one in named.values() if one is not None for x in one.flatten().tolist()]
        for named in (seen.value, seen.right)
    )
    alike = len(actual) == len(right) and actual[0] != 0
    return (
        alike
        and not math.isclose(actual[0], right[0], rel_tol=1e-3)
        and all(
            math.isclose(a * right[0], b * actual[0], rel_tol=1e-4, abs_tol=1e-4)
            for a, b in zip(actual, right, strict=True)
        )
    )


def where_they_held(held: Sequence[Gradients], name: str) -> str:
    """ ", where matrix.grad was [1, 2] on rank 0, ...", for the parameter in question."""
    each = ", ".join(f"{in_words(own[name])} on rank {r}" for r, own in enumerate(held) if name)
    return f", where {name}.grad was {each}" if name else ""
