"""Replace every gradient by its mean over the ranks.

Each rank has computed gradients from its own samples. Your function is called on all ranks,
between `backward` and `step`. Afterwards, on every rank, the `.grad` of each parameter holds the
mean of the ranks' gradients.

- A parameter without a gradient, such as a frozen one, has none on any rank. Its `.grad` stays
  None.
- Parameters can differ in dtype, and some gradients are not contiguous.
- Your function is called in every step. Keep no tensors from the step before: `zero_grad` sets
  `.grad` to None, so these are new ones.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.judging import Comparison, DistributedCheck, Edit, Observation, Pattern, edit
from ddp_workbook.judging.equality import values_equal
from ddp_workbook.judging.gradients import (
    WEIGHTS_UNCHANGED,
    Gradients,
    describe_gradients,
    make_gradients,
    mean,
    set_gradients,
    weights_and_gradients,
)

MINUTES = 8
HINTS = [
    "One collective gives every rank the sum of what the ranks hold. Which gradients would you "
    "hand to it, and on which ranks?",
    "all_reduce works in place on one tensor. A sum of world_size gradients is how many times "
    "their mean?",
    "Loop over model.parameters(), in the same order on all ranks, and skip a parameter whose "
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


class Step(NamedTuple):
    """A model, and the gradients of each rank."""

    model: Small
    gradients: list[Gradients]


FIRST, SECOND = Small(), Small()
SPECIAL = [None, torch.inf, 0.0]  # by call: the last gradient of rank 1, if it is a special one


def calls(size: int) -> list[Step]:
    """Two calls with one model, in which a rank has an overflow, and one with another model."""
    models = (FIRST, FIRST, SECOND)
    return [
        Step(model, [gradients_of(number, rank) for rank in range(size)])
        for number, model in enumerate(models)
    ]


def gradients_of(call: int, rank: int) -> Gradients:
    """What `rank` holds; the gradient of `matrix` is not contiguous."""
    own = make_gradients(FIRST, call, rank) | {"frozen": None, "unused": None}
    own["matrix"] = own["matrix"].mT.contiguous().mT
    if rank == 1 and SPECIAL[call] is not None:
        own["inner.scale"] = torch.tensor(SPECIAL[call])
    return own


def make_args(call: Step, rank: int) -> tuple[Small]:
    """The model, with the gradients of this rank."""
    set_gradients(call.model, call.gradients[rank], rank)
    return (call.model,)


def edit_lines(send: str, then: str) -> Edit:
    """A mistake in the two lines for each gradient."""
    return edit(
        "dist.all_reduce(parameter.grad)", send, "parameter.grad /= dist.get_world_size()", then
    )


def mean_or_unchanged(obs: Observation) -> bool:
    """Whether every gradient that is not the mean is what this rank has held."""
    own = obs.case.gradients[obs.rank]
    return all(
        values_equal(actual, obs.expected[name]) or values_equal(actual, own[name])
        for name, actual in obs.value.items()
    )


CHECK = DistributedCheck(
    cases=calls,
    call_text=lambda call, part: (
        f"average_gradients(model){describe_gradients(call.gradients, part)}"
    ),
    make_args=make_args,
    observe=weights_and_gradients,
    compare={
        "weight": WEIGHTS_UNCHANGED,
        "gradient": Comparison(
            "Which of the ranks' gradients are in this one, how often, and divided by what?",
            lambda call: mean(call.gradients),
        ),
    },
    mistakes={
        "Nothing was sent. How does a rank learn the gradients of the others?": [
            edit_lines("pass", then) for then in ("pass", "parameter.grad /= dist.get_world_size()")
        ],
        "This is the sum over the ranks. Which line makes it a mean, and does .grad hold the "
        "result?": edit("/= dist.get_world_size()", "/= 1"),
        "This is the rank's own gradient, divided by the number of ranks. Which tensor holds the "
        "sum?": edit("all_reduce(parameter.grad)", "all_reduce(parameter.grad.clone())"),
        "This gradient is not contiguous, and it is the rank's own, divided by the number of "
        "ranks. Which of your lines makes a copy of such a tensor?": edit(
            "all_reduce(parameter.grad)", "all_reduce(parameter.grad.contiguous())"
        ),
        "All gradients are as before, though something was sent. Which tensor does the collective "
        "write into, and who holds it afterwards?": edit_lines(
            "dist.all_reduce(parameter.grad.clone())", "pass"
        ),
        "This is rank 0's gradient, on every rank. Where are those of the others?": edit_lines(
            "dist.broadcast(parameter.grad, 0)", "pass"
        ),
        "This is the last rank's gradient, on every rank. Does your list hold several tensors, or "
        "one tensor several times?": edit_lines(
            "dist.broadcast(parameter.grad, dist.get_world_size() - 1)", "pass"
        ),
        "The ranks' gradients are not added up here. Which operation does your collective use?": [
            edit_lines(
                f"dist.all_reduce(parameter.grad, dist.ReduceOp.{op})", f"parameter.grad /= {by}"
            )
            for op in ("MAX", "MIN", "PRODUCT")
            for by in ("1", "dist.get_world_size()")
        ],
        "A parameter without a gradient keeps none. Which line gives it one?": [
            edit(
                "if parameter.grad is not None:",
                f"if parameter.grad is None and {which}:\n"
                "            parameter.grad = parameter.detach() * 0\n"
                "        if parameter.grad is not None:",
            )
            for which in ("True", "parameter.requires_grad")
        ],
        "The gradient is None now. Which line removes it? zero_grad does.": edit(
            "parameter.grad /= dist.get_world_size()", "parameter.grad = None"
        ),
        "This gradient is as it was. Is the mean written into .grad itself, and does your "
        "loop reach all: inner modules, each dtype, and what follows a None?": Pattern(
            mean_or_unchanged, "gradient"
        ),
    },
    errors={
        "Boolean value of Tensor": "A gradient is a tensor of many numbers, so it is neither true "
        "nor false. How do you ask whether it is None?",
        "NoneType": "A frozen parameter has no gradient: its .grad is None. What should your "
        "loop do then?",
        "SIGABRT": "Do all ranks hand the same gradients to the collective, in the same order? "
        "If shapes or dtypes differ, gloo aborts the process. A set has another order in each "
        "process.",
    },
    on_pass="every gradient is the mean of the ranks' gradients, weights and frozen parameters are "
    "as they were, at 1 to 4 ranks",
)
