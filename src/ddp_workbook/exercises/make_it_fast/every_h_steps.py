"""Let each rank train by itself for some steps, then meet: weights travel instead of gradients.

`model` is an nn.Linear, equal on all ranks. `batches` are this rank's own, pairs (x [rows, 8],
y [rows, 1]); all ranks have equally many, at least one. For each batch, make a step of SGD with
learning rate 0.1 on the mean squared error. After every `every` steps, and after the last step, the
ranks meet. They compare how far each has gone since their last meeting, or since the beginning: its
weights minus the weights from then. From there, all ranks move by `rate` times the mean of these
differences, and go on with the same weights. (With a rate of 1, that is the mean of the weights.)

- Between two meetings nothing is sent. At a meeting each parameter's difference goes into one
  all_reduce, and nothing else is sent.
- If the ranks meet after the last step anyway, they do not meet twice.
- Return nothing. At the end, the model has the weights of the last meeting.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.judging import Comparison, DistributedCheck, edit
from ddp_workbook.judging.comm_comparisons import ONLY_ALL_REDUCE, bytes_sent
from ddp_workbook.judging.regression import make_batch, make_model

MINUTES = 12
HINTS = [
    "At the first meeting you need the weights from the beginning. Which line keeps them, and does "
    "a step of the optimizer change what you kept?",
    "What does each rank send at a meeting, and by what is the sum divided? What do the ranks keep "
    "for the next meeting?",
    "Steps are counted from 1: a meeting is when the count is a multiple of `every`, or the number "
    "of batches.",
]


def every_h_steps(
    model: nn.Linear, batches: list[tuple[Tensor, Tensor]], every: int, rate: float
) -> None:
    """Train on this rank's batches, and meet after each `every` steps and after the last one."""
    ### BEGIN SOLUTION
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    met = [one.detach().clone() for one in model.parameters()]
    for number, (x, y) in enumerate(batches, start=1):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        if number % every == 0 or number == len(batches):
            for one, before in zip(model.parameters(), met, strict=True):
                gone = one.detach() - before
                dist.all_reduce(gone)
                before += rate * gone / dist.get_world_size()
                one.data.copy_(before)
    ### END SOLUTION


class Run(NamedTuple):
    """One call."""

    batches: int
    every: int
    rate: float
    ranks: int = 4

    @property
    def meetings(self) -> int:
        """How often the ranks meet."""
        return -(-self.batches // self.every)


CASES = [Run(6, 3, 0.5), Run(5, 2, 1.0), Run(6, 2, 0.5), Run(2, 5, 0.75), Run(3, 1, 1.0)]
ROWS, BYTES = 4, 4 * (8 + 1)  # rows of a rank, and bytes of the parameters


def batches_of(case: Run, rank: int) -> list[tuple[Tensor, Tensor]]:
    """A rank's batches, whose rule differs from rank to rank."""
    batches = [make_batch(number, ROWS, rank) for number in range(case.batches)]
    return [(x, (1 + rank) * y) for x, y in batches]


def expected(case: Run) -> dict[str, Tensor]:
    """The weights after the last meeting: all ranks in one process, one after the other."""
    shared = torch.nn.utils.parameters_to_vector(make_model().parameters()).detach()
    for first in range(0, case.batches, case.every):
        final_weights = []
        for rank in range(case.ranks):
            model = make_model()
            torch.nn.utils.vector_to_parameters(shared.clone(), model.parameters())
            for x, y in batches_of(case, rank)[first : first + case.every]:
                gradients = torch.autograd.grad(F.mse_loss(model(x), y), [*model.parameters()])
                with torch.no_grad():
                    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                        parameter -= 0.1 * gradient
            final_weights.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
        shared = shared + case.rate * (sum(final_weights) / case.ranks - shared)
    return {"weight": shared[:8][None], "bias": shared[8:]}


MOVE = "before += rate * gone / dist.get_world_size()"
MEET = "number % every == 0 or number == len(batches)"
CHECK = DistributedCheck(
    cases=CASES,
    call_text="{call}, {case.batches} batches a rank",
    make_args=lambda case, rank: (make_model(), batches_of(case, rank), case.every, case.rate),
    observe=lambda _, model, *rest: {"weights": dict(model.named_parameters())},
    compare={
        "weights": Comparison(
            "Take every=1 and rate=1 first. Which weights has each rank before the meeting, which "
            "ones after it, and what is kept for the next meeting?",
            expected,
            actual="{value} as the model's {part} on rank {rank}",
        ),
        "operations": ONLY_ALL_REDUCE,
        "bytes": bytes_sent(
            lambda case: BYTES * case.meetings,
            "weights",
            hint="How many meetings are there, and what is sent at each, in which dtype?",
            required=lambda obs: (
                f"{obs.expected:,} bytes: {BYTES} at each of {obs.case.meetings} meetings"
            ),
        ),
    },
    mistakes={
        "The ranks meet after every step here. What is `every` for?": edit(MEET, "True"),
        "The gradients are averaged in each step, as DDP does it. Weights travel here, and only "
        "now and then.": edit(
            "        optimizer.step()\n",
            "        for one in model.parameters():\n            "
            "dist.all_reduce(one.grad)\n            one.grad /= dist.get_world_size()\n        "
            "optimizer.step()\n",
        ),
        "The steps after the last multiple of `every` are not shared. Which meeting is missing?": (
            edit(MEET, "number % every == 0")
        ),
        "The ranks meet at the end alone. When else?": edit(MEET, "number == len(batches)"),
        "Your count is one off. Is the first step number 0 or 1?": [
            edit("start=1", "start=0"),
            edit("number % every == 0", "(number - 1) % every == 0"),
        ],
        "These are the weights of rank {rank} alone. What have the others sent?": edit(
            "                dist.all_reduce(gone)\n", "", " / dist.get_world_size()", ""
        ),
        "This is rank {rank}'s own difference, divided by the ranks. Into which tensor does "
        "all_reduce write?": edit("dist.all_reduce(gone)", "dist.all_reduce(gone.clone())"),
        "The differences are added up here. The mean of them is asked for.": edit(
            " / dist.get_world_size()", ""
        ),
        "This is the mean of the weights. What does `rate` do?": edit("rate * gone", "gone"),
        "This is the right move from where the rank has gone. From where do all ranks move?": edit(
            MOVE,
            "before.copy_(one.detach() + rate * gone / dist.get_world_size())",
        ),
        "Each meeting is right when seen from the beginning. From which weights does the second "
        "meeting count?": edit(
            "                before += rate * gone / dist.get_world_size()\n"
            "                one.data.copy_(before)",
            "                one.data.copy_(before + rate * gone / dist.get_world_size())",
        ),
        "The meetings move the other way. Which of the two weights is subtracted?": edit(
            "one.detach() - before", "before - one.detach()"
        ),
        "The model still has its own weights. Is what you kept a copy, which no step changes, and "
        "does the model get the weights of the meeting?": [
            edit("one.detach().clone()", "one.detach()"),
            edit("                one.data.copy_(before)", "                pass"),
        ],
        "Gradients of earlier batches are still in it. Where do they end?": edit(
            "        optimizer.zero_grad()\n", ""
        ),
        "Nothing was trained between the meetings. Which line makes the step?": edit(
            "        optimizer.step()\n", ""
        ),
    },
    errors={
        "a leaf Variable that requires grad": "Weights are changed outside of autograd: "
        "`with torch.no_grad()`, or .data.",
        "leaf variable that requires grad": "Weights are changed outside of autograd: "
        "`with torch.no_grad()`, or .data.",
    },
    on_pass="the weights of one process that plays all ranks, and the bytes of the meetings alone, "
    "at 1 to 4 ranks",
)
