"""A small model with known gradients on every rank, for exercises that exchange gradients.

A case is a list with the gradients of each rank: a dict by parameter, None for no gradient.
"""

from functools import cache

import torch
from torch import Tensor, nn

from ddp_workbook.exercises.judging.check import Look
from ddp_workbook.exercises.judging.unordered import Unordered
from ddp_workbook.exercises.judging.values import in_words

Gradients = dict[str, Tensor | None]
FACTORS = [1, -2, 4.5, -7]  # by rank; no mean or sum of the first few is one of them


class Small(nn.Module):
    """Parameters of several shapes and dtypes, on two levels; one is frozen, one is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(2, 3))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.inner = nn.ParameterDict(
            {"bias": torch.zeros(3, dtype=torch.float64), "scale": torch.zeros(())}
        )
        self.unused = nn.Parameter(torch.zeros(4))


class Case(list[Gradients]):
    """The gradients of each rank before a call, and the number of the model that has them."""

    def __init__(self, call: int, size: int, model: int):
        super().__init__(held(call, rank) for rank in range(size))
        self.model = model


def cases(size: int) -> list[Case]:
    """Three calls, the last one with another model.

    In the second call a rank has an overflow in its last gradient; in the third one it is zero.
    """
    return [Case(0, size, model=0), Case(1, size, model=0), Case(2, size, model=1)]


def held(call: int, rank: int) -> Gradients:
    """What `rank` holds before a call: fractions of both signs; no sum of them is one of them.

    The gradient of `matrix` is not contiguous.
    """
    own: Gradients = {}
    for number, (name, parameter) in enumerate(Small().named_parameters(), start=1):
        counting = torch.arange(parameter.numel(), dtype=parameter.dtype).reshape(parameter.shape)
        own[name] = (counting + number + 0.3 + 20 * call) * FACTORS[rank]
    own["matrix"] = own["matrix"].mT.contiguous().mT
    own["matrix"][0, 1] = 0.7  # the same on all ranks
    if call and rank == 1:
        own["inner.scale"] = torch.tensor(torch.inf if call == 1 else 0.0)
    return own | {"frozen": None, "unused": None}


def mean(case: list[Gradients]) -> Gradients:
    """The mean over the ranks."""
    return total(case, 1 / len(case))


def total(case: list[Gradients], factor: float = 1) -> Gradients:
    """The sum over the ranks, times `factor`."""
    every = {name: [own[name] for own in case] for name in case[0]}
    return {name: None if own[0] is None else sum(own) * factor for name, own in every.items()}


def zeros_for_none(gradients: Gradients) -> dict[str, Tensor]:
    """The same, with zeros for parameters without a gradient."""
    parameters = dict(Small().named_parameters())
    return {
        name: torch.zeros_like(parameters[name]).detach() if own is None else own
        for name, own in gradients.items()
    }


@cache
def the_model(number: int) -> Small:
    """The model of this number, in this process."""
    return Small()


def model_of(case: Case, rank: int) -> tuple[Small]:
    """The argument of a call: a model with the rank's gradients, and with weights of `rank`.

    Two calls use the same model with new gradients, as after zero_grad and backward.
    """
    Unordered.mixed = True  # the hash of a parameter depends on the process
    model = the_model(case.model)
    for name, parameter in model.named_parameters():
        parameter.data.fill_(rank)
        parameter.grad = None if case[rank][name] is None else case[rank][name].clone()
    return (model,)


def weights_and_gradients(_: None, model: Small, *rest: object) -> dict[str, dict]:
    """The weights and gradients of the model after a call."""
    named = dict(model.named_parameters())
    return {
        "weights": {name: parameter.detach() for name, parameter in named.items()},
        "gradients": {name: parameter.grad for name, parameter in named.items()},
    }


WEIGHTS_STAY = Look(
    of=lambda seen: seen.came["weights"],
    right=lambda case, rank: {
        name: torch.full_like(parameter, rank).detach()
        for name, parameter in Small().named_parameters()
    },
    otherwise="Which tensors do you pass to the collective, the parameters or their gradients?",
    came="the weight {part} is {value} {where}",
    required="{right} there, as before: only .grad changes",
)


def where_they_held(case: list[Gradients], part: str) -> str:
    """ ", where matrix.grad was [1, 2] on rank 0, ...", for the parameter in question."""
    each = ", ".join(f"{in_words(own[part])} on rank {r}" for r, own in enumerate(case) if part)
    return f", where {part}.grad was {each}" if part else ""
