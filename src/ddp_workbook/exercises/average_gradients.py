"""Replace every gradient by its mean over the ranks.

Each rank has computed gradients from its own rows, and calls your function between `backward` and
`step`. Afterwards `.grad` holds, on every rank, the mean of the ranks' gradients. A parameter
without gradient, such as a frozen one, has none on any rank, and stays so.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.exercises import Attempt, NotYet, attempt_on_ranks, in_words

HINTS = [
    "One of the collectives gives every rank the sum of what the ranks hold. Which gradients would "
    "you hand to it, and on which ranks?",
    "all_reduce works in place on one tensor. A sum of world_size gradients is how many times "
    "their mean?",
    "A loop over model.parameters(), the same on all ranks, which passes over a parameter whose "
    ".grad is None.",
]

FOR_ERRORS = {"NoneType": "A frozen parameter has no gradient: what is its .grad, and what then?"}
SIZES = (1, 2, 3, 4)
PAUSE = 0.05  # seconds that the others come later than rank 0: what is not waited for, shows
LATE = 0.5  # seconds at most until it has come after all


def average_gradients(model: nn.Module) -> None:
    """Replace each parameter's .grad by its mean over the ranks."""
    ### BEGIN SOLUTION
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()  # all_reduce adds up
    ### END SOLUTION


class SmallModel(nn.Module):
    """A matrix, a bias, a number, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(2, 3))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.scale = nn.Parameter(torch.zeros(()))


def gradient_of(parameter: nn.Parameter, number: int, rank: int) -> torch.Tensor:
    """What `rank` holds for the parameter of this number: equal ones nowhere."""
    counting = torch.arange(1, parameter.numel() + 1, dtype=parameter.dtype)
    return (counting + 10 * number).reshape(parameter.shape) * (rank + 1)


def mean_of(parameter: nn.Parameter, number: int, size: int) -> torch.Tensor | None:
    """What every one of `size` ranks must hold afterwards; a frozen parameter has no gradient."""
    if parameter.requires_grad:
        return sum(gradient_of(parameter, number, rank) for rank in range(size)) / size
    return None


def before_and_after(average_gradients: Any, rank: int) -> dict[str, dict]:
    """In a rank: by parameter, weight and gradient when the attempt returns, and a moment later."""
    model = SmallModel()
    for number, parameter in enumerate(model.parameters()):
        parameter.data.fill_(rank)
        if parameter.requires_grad:
            parameter.grad = gradient_of(parameter, number, rank)
    if rank:
        time.sleep(PAUSE)
    average_gradients(model)
    at_once, end = state(model), time.monotonic() + LATE
    while not averaged(model) and time.monotonic() < end:
        time.sleep(PAUSE / 5)
    return {"at once": at_once, "later": state(model)}


def averaged(model: nn.Module) -> bool:
    """True if every gradient is what it must be."""
    size = dist.get_world_size()
    return all(
        same(parameter.grad, mean_of(parameter, number, size))
        for number, parameter in enumerate(model.parameters())
    )


def state(model: nn.Module) -> dict[str, tuple]:
    """Copies of weight and gradient, by name."""
    return {
        name: (p.detach().clone(), None if p.grad is None else p.grad.detach().clone())
        for name, p in model.named_parameters()
    }


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Compare every gradient with the mean, on every rank, at each world size."""
    for size in sizes:
        answers, _ = attempt_on_ranks(attempt, before_and_after, each=range(size))
        for rank, answer in enumerate(answers):
            compare_answer(rank, answer, answers)
    return (
        "every gradient is the mean of the ranks' gradients, weights and frozen parameters are as "
        "they were, at 1 to 4 ranks"
    )


def compare_answer(rank: int, answer: dict[str, dict], answers: list[dict]) -> None:
    """Raise NotYet for the first parameter of this rank that is not as it must be."""
    size = len(answers)
    for number, (name, parameter) in enumerate(SmallModel().named_parameters()):
        weight, gradient = answer["at once"][name]
        if not torch.equal(weight, torch.full_like(weight, rank)):
            raise NotYet(
                "average_gradients(model), where rank r has weights of r",
                f"{name} is {in_words(weight)} on rank {rank}",
                f"weights of {rank} there, as before: only .grad changes",
                "Which tensors do you hand to the collective, the parameters or their gradients?",
            )
        own = [gradient_of(parameter, number, r) for r in range(size)]
        mean = mean_of(parameter, number, size)
        if not same(gradient, mean):
            raise NotYet(
                f"average_gradients(model), where {name}.grad was {held(own, mean)}",
                f"{came_back(gradient)} on rank {rank}",
                f"{came_back(mean)} on every rank",
                look_at(gradient, own, answer["later"][name][1]),
            )


def same(one: Any, other: torch.Tensor | None) -> bool:
    """Equal up to rounding, or both None."""
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and torch.allclose(one, other)


def held(own: list[torch.Tensor], mean: torch.Tensor | None) -> str:
    """The gradients before, by rank."""
    if mean is None:
        return "None on every rank"
    return ", ".join(f"{in_words(one)} on rank {rank}" for rank, one in enumerate(own))


def came_back(gradient: torch.Tensor | None) -> str:
    """The gradient in words."""
    return "None" if gradient is None else in_words(gradient)


def look_at(gradient: Any, own: list[torch.Tensor], later: Any) -> str:
    """The thought behind a wrong gradient."""
    size, total = len(own), sum(own)
    if gradient is None:
        return "Where has the gradient gone? zero_grad and set_to_none take it away."
    if not same(gradient, later):
        return (
            "The values still changed after your function had returned. Who waits for the "
            "collectives that it started?"
        )
    if same(gradient, total / size / size):
        return "This is the mean, divided by the number of ranks once more. Is it a mean already?"
    if same(gradient, total):
        return "This is the sum over the ranks. By how much is a sum larger than a mean?"
    if any(same(gradient, one) for one in own):
        return "This is one rank's own gradient. Does every rank get the result, and of every one?"
    if not gradient.any():
        return "A parameter without gradient is passed over. It needs no zeros."
    return "Which of the ranks' gradients are in this one, and how often?"
