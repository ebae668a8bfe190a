"""Replace every gradient by its mean over the ranks.

Each rank has computed gradients from its own rows, and calls your function between `backward` and
`step`. Afterwards `.grad` holds, on every rank, the mean of the ranks' gradients. A parameter
without gradient, such as a frozen one, has none on any rank, and stays so.
"""

import torch.distributed as dist
from torch import nn

from ddp_workbook.exercises import Look, OnRanks
from ddp_workbook.exercises.judging.gradients import (
    WEIGHTS_STAY,
    cases,
    mean,
    model_of,
    total,
    weights_and_gradients,
    where_they_held,
    zeros_for_none,
)

MINUTES = 8
HINTS = [
    "One of the collectives gives every rank the sum of what the ranks hold. Which gradients would "
    "you hand to it, and on which ranks?",
    "all_reduce works in place on one tensor. A sum of world_size gradients is how many times "
    "their mean?",
    "A loop over model.parameters(), the same on all ranks, which passes over a parameter whose "
    ".grad is None.",
]


def average_gradients(model: nn.Module) -> None:
    """Replace each parameter's .grad by its mean over the ranks."""
    ### BEGIN SOLUTION
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()  # all_reduce adds up
    ### END SOLUTION


CHECK = OnRanks(
    cases=cases,
    called=lambda case, part: f"average_gradients(model){where_they_held(case, part)}",
    given=model_of,
    observe=weights_and_gradients,
    looks=[
        WEIGHTS_STAY,
        Look(
            of=lambda seen: seen.came["gradients"],
            right=mean,
            mistakes={
                "This is the mean, divided by the number of ranks once more. Is it a mean "
                "already?": lambda case: total(case, 1 / len(case) ** 2),
                "This is the sum over the ranks. By how much is a sum larger than a mean?": total,
                "This is one rank's own gradient. Does every rank get the result, and of every "
                "one?": lambda case, rank: case[rank],
                "A parameter without gradient is passed over. It needs no zeros.": (
                    lambda case: zeros_for_none(mean(case))
                ),
                "Where has the gradient gone? zero_grad and set_to_none take it away.": (
                    lambda case: dict.fromkeys(case[0])
                ),
            },
            otherwise="Which of the ranks' gradients are in this one, and how often?",
        ),
    ],
    errors={"NoneType": "A frozen parameter has no gradient: what is its .grad, and what then?"},
    proves="every gradient is the mean of the ranks' gradients, weights and frozen parameters are "
    "as they were, at 1 to 4 ranks",
)
