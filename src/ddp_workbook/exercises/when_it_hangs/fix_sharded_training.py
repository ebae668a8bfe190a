"""Mend a training of a sharded model that runs, raises nothing, and does not learn.

`model` is an nn.Linear, equal on all ranks, and not yet sharded. `batches` are this rank's parts
of the batches, pairs (x [rows, 8], y [rows, 1]) with equally many rows on all ranks. Shard the
model with `fully_shard`, and make a step of SGD with learning rate 0.1 for each batch. Return, for
each batch, the mean over the ranks of the mean squared error before its step.

- Every rank returns the same, and it is what one process would return for the whole batches.
- The model stays sharded: its parameters are DTensors afterwards.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from ddp_workbook.judging import Comparison, DistributedCheck, edit
from ddp_workbook.judging.regression import make_batch, make_model

MINUTES = 8
HINTS = [
    "The loss does not fall, so the weights do not change. Which ones does the optimizer have?",
    "`fully_shard` replaces the parameters of the model by DTensors. Who still holds the old ones?",
    "Make the optimizer from the parameters that the model has when it is called.",
]


def fix_sharded_training(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The loss of each batch, the mean over the ranks, while the model is trained on them."""
    ### BEGIN SOLUTION
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses
    ### GIVEN
    # # TODO: mend this
    # optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # fully_shard(model)
    # losses = []
    # for x, y in batches:
    #     optimizer.zero_grad()
    #     loss = F.mse_loss(model(x), y)
    #     loss.backward()
    #     optimizer.step()
    #     mean = loss.detach()
    #     dist.all_reduce(mean)
    #     losses.append(mean.item() / dist.get_world_size())
    # return losses
    ### END SOLUTION


class Run(NamedTuple):
    """One call: so many batches of so many rows a rank."""

    batches: int
    rows: int
    ranks: int = 4


CASES = [Run(4, 3), Run(1, 8), Run(6, 1)]


def make_args(case: Run, rank: int) -> tuple[nn.Linear, list[tuple[Tensor, Tensor]]]:
    """The model, and this rank's parts."""
    return make_model(), [make_batch(n, case.rows, rank) for n in range(case.batches)]


def expected(case: Run) -> list[float]:
    """The losses of one process on the whole batches."""
    model, losses = make_model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(case.batches):
        parts = [make_batch(number, case.rows, rank) for rank in range(case.ranks)]
        x, y = (torch.cat(part) for part in zip(*parts, strict=True))
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


SHARD, MAKE_OPTIMIZER = (
    "fully_shard(model)\n",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n",
)
CHECK = DistributedCheck(
    cases=CASES,
    call_text="{call}, {case.batches} batches of {case.rows} rows a rank",
    make_args=make_args,
    observe=lambda returned, model, _: {
        "losses": returned,
        "sharded": all(hasattr(parameter, "_local_tensor") for parameter in model.parameters()),
    },
    compare={
        "losses": Comparison(
            "Compare the losses step by step. In which step do they begin to differ, and "
            "what was done just before?",
            expected,
        ),
        "sharded": Comparison(
            "Which line shards the model, and what is done to it afterwards?",
            True,
            actual="the right losses, of a model that is not sharded",
            required="parameters that are DTensors",
        ),
    },
    mistakes={
        "The loss stays where it was: no step changes the model. Whose parameters does the "
        "optimizer hold?": edit(f"{SHARD}    {MAKE_OPTIMIZER}", f"{MAKE_OPTIMIZER}    {SHARD}"),
        "Gradients of earlier batches are still in it. Where do they end?": edit(
            "        optimizer.zero_grad()\n", ""
        ),
        "This is the loss of rank {rank}'s own rows. Where do the others' come in?": [
            edit("        dist.all_reduce(mean)\n", "", " / dist.get_world_size()", ""),
        ],
        "The losses of all ranks are added. How many are there?": edit(
            " / dist.get_world_size()", ""
        ),
        "The ranks train models of their own. What averages their gradients?": edit(
            f"    {SHARD}", ""
        ),
    },
    errors={
        "mixed torch.Tensor and DTensor": "One of the two is sharded. Which one did you keep?",
    },
    on_pass="a sharded model learns as one process does, on 1 to 4 ranks",
)
