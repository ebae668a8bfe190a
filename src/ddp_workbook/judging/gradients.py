"""Known gradients on every rank, for exercises that replace them by their mean over the ranks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ddp_workbook.judging.comparison import Comparison
from ddp_workbook.judging.set_order import RankOrderedSet
from ddp_workbook.judging.values import in_words

Gradients = dict[str, Any]  # by parameter: its gradient; None for no gradient


def make_gradients(model: nn.Module, call: int, rank: int) -> Gradients:
    """What `rank` holds before a call: tenths of both signs, different in each call and rank."""
    random = torch.Generator().manual_seed(10 * call + rank)
    return {
        name: torch.randint(-99, 99, parameter.shape, generator=random).to(parameter.dtype) / 10
        for name, parameter in model.named_parameters()
    }


def mean(gradients: Sequence[Gradients]) -> Gradients:
    """The mean over the ranks."""
    return {
        name: None if gradient is None else sum(own[name] for own in gradients) / len(gradients)
        for name, gradient in gradients[0].items()
    }


def set_gradients(model: nn.Module, gradients: Gradients, rank: int) -> None:
    """Set the gradients, as new tensors, and weights that differ between ranks."""
    RankOrderedSet.reverse_on_odd_ranks = True  # the hash of a parameter depends on the process
    for name, parameter in model.named_parameters():
        parameter.data.fill_(rank)
        parameter.grad = None if gradients[name] is None else gradients[name].clone()


def weights_and_gradients(_: None, model: nn.Module, *rest: object) -> dict[str, dict]:
    """The weights and gradients of the model after a call."""
    parameters = dict(model.named_parameters())
    return {
        "weight": parameters,
        "gradient": {name: parameter.grad for name, parameter in parameters.items()},
    }


WEIGHTS_UNCHANGED = Comparison(
    "Which tensors do you write into, the parameters or their gradients?",
    required="{expected} there, as before: only .grad changes",
)


def describe_gradients(gradients: Sequence[Gradients], name: str) -> str:
    """ ", where matrix.grad was [1, 2] on rank 0, ...", for the parameter in question."""
    each = ", ".join(
        f"{in_words(own[name])} on rank {r}" for r, own in enumerate(gradients) if name
    )
    return f", where {name}.grad was {each}" if name else ""
