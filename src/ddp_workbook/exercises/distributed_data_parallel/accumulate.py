"""Take one optimizer step with the gradients of several micro-batches, and send them once.

A batch that does not fit into memory is cut into micro-batches, and their gradients add up in
`.grad`. Your function is called on all ranks. Each rank has the same number of micro-batches, at
least one, and all micro-batches have the same number of rows. Inside `with ddp.no_sync():` DDP
sends nothing.

- Afterwards the weights are those of one process that takes one step with the mean
  `F.cross_entropy` over all rows of all ranks.
- Only one micro-batch fits into memory: call `backward` for it before the forward of the next.
- Every forward goes through `ddp`, and DDP sends each gradient once: one all_reduce for each of
  its buckets, not one for each micro-batch.
- `.grad` may still hold what an earlier step left there. It must not count.
- `optimizer` may be any optimizer, such as SGD or AdamW. Leave its settings, such as the learning
  rate, and those of `ddp` as you found them.
"""

from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_workbook.judging import Comparison, DistributedCheck, body, edit
from ddp_workbook.judging.micro_batches import (
    SHARED_MISTAKES,
    gradients_sent_once,
    micro_batch,
    wrap_in_ddp,
)

MINUTES = 15
HINTS = [
    "cross_entropy is a mean over its rows, and backward adds to .grad. After k micro-batches, how "
    "many times the mean over all rows is in .grad?",
    "Under no_sync the gradients add up on each rank alone. After which micro-batch must DDP "
    "send, and what is in .grad by then?",
    "DDP decides in the forward whether the backward that follows will send. Which lines must be "
    "inside no_sync, and for which of the micro-batches?",
]


def accumulate(
    ddp: DistributedDataParallel, micro_batches: list[tuple[Tensor, Tensor]], optimizer: Optimizer
) -> None:
    """Take one step on all `micro_batches` of all ranks; each is (images [rows, 3], labels)."""
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        last = number == len(micro_batches)
        # The forward as well: there DDP decides whether backward will send.
        with nullcontext() if last else ddp.no_sync():
            loss = F.cross_entropy(ddp(images), labels)
            (loss / len(micro_batches)).backward()  # the last one sends the sum of all
    optimizer.step()
    ### END SOLUTION


INITIAL_WEIGHTS = torch.linspace(-1, 1, 8, dtype=torch.float64)  # weight [2, 3] and bias [2], flat
RATE = 0.5


class Step(NamedTuple):
    """A call: its number, how many micro-batches each rank has, their rows, and the optimizer."""

    number: int
    batches: int
    rows: int
    optimizer: type[Optimizer] = torch.optim.SGD


def make_args(step: Step, rank: int) -> tuple:
    """A model in DDP, which notes what goes through it; the rank's micro-batches; an optimizer."""
    model = nn.Linear(3, 2, dtype=torch.float64)
    ddp = wrap_in_ddp(model, INITIAL_WEIGHTS, old_gradient=1.5 + rank)
    optimizer = step.optimizer(model.parameters(), lr=RATE)
    ddp.events = []  # what is done, and whether it is done outside of no_sync

    def note(what: str) -> None:
        ddp.events.append((what, ddp.require_backward_grad_sync))

    ddp.register_forward_pre_hook(lambda *_: note("forward"))
    model.bias.register_hook(lambda _: note("backward"))
    optimizer.register_step_post_hook(lambda *_: note("step"))
    numbers = range(step.batches)
    return ddp, [micro_batch(model, step.rows, step.number, rank, n) for n in numbers], optimizer


def observe(_: None, ddp: DistributedDataParallel, __: list, optimizer: Optimizer) -> dict:
    """The final weights, what was done in which order, and the settings afterwards."""
    return {
        "calls in order": [what for what, _ in ddp.events],
        "weights": nn.utils.parameters_to_vector(ddp.module.parameters()),
        "a forward outside of no_sync": ("forward", True) in ddp.events,
        "final value": {
            "the learning rate": optimizer.param_groups[0]["lr"],
            "ddp.require_backward_grad_sync": ddp.require_backward_grad_sync,
        },
    }


MEAN_LOSS = "(loss / len(micro_batches))"
SMALLER_RATE = "optimizer.param_groups[0]['lr'] /= len(micro_batches)\n    optimizer.step()"
RESTORED_RATE = "\n    optimizer.param_groups[0]['lr'] *= len(micro_batches)"
CHECK = DistributedCheck(
    cases=lambda size: [Step(0, 3, 2), Step(1, 1, 4), Step(2, 2, 3, torch.optim.AdamW)],
    call_text="{call}, with {case.optimizer.__name__}; micro-batches of a rank: {case.batches}, "
    "rows of each: {case.rows}",
    make_args=make_args,
    observe=observe,
    compare={
        "calls in order": Comparison(
            "Which of these calls is missing, or comes too often?",
            lambda step: ["forward", "backward"] * step.batches + ["step"],
        ),
        "weights": "Which micro-batches of which ranks are in this step, and by what is each "
        "divided?",
        "bytes": gradients_sent_once(
            INITIAL_WEIGHTS, "Which lines sent that? DDP does it in a backward outside of no_sync."
        ),
        "a forward outside of no_sync": Comparison(
            "Is the averaging done by hand? DDP does it while backward is still computing. Which "
            "forward must be outside of no_sync?",
            True,
        ),
        "final value": Comparison(
            "The caller's next steps depend on this setting. Which line changes it?",
            {"the learning rate": RATE, "ddp.require_backward_grad_sync": True},
        ),
    },
    mistakes={
        **SHARED_MISTAKES,
        "Only the last micro-batch went through ddp. Which model gets the images of the others?": (
            edit("ddp(images)", "(ddp if last else ddp.module)(images)")
        ),
        "More than one micro-batch is in memory at once, its rows or its graph. When could the "
        "first one be freed?": [
            body("""
                images, labels = map(torch.cat, zip(*micro_batches))
                optimizer.zero_grad()
                F.cross_entropy(ddp(images), labels).backward()
                optimizer.step()
            """),
            body("""
                losses = [F.cross_entropy(ddp(images), labels) for images, labels in micro_batches]
                optimizer.zero_grad()
                (sum(losses) / len(losses)).backward()
                optimizer.step()
            """),
            body("""
                with ddp.no_sync():
                    losses = [F.cross_entropy(ddp(x), labels) for x, labels in micro_batches]
                for loss in losses:
                    loss.backward()
                optimizer.step()
            """),
        ],
        "There is an optimizer step for each micro-batch. With which weights are the later "
        "gradients computed then?": edit("    optimizer.step()", "        optimizer.step()"),
        "The optimizer has made no step. Where do you call it?": edit("optimizer.step()", "pass"),
        "The step is too long, by a factor of the number of micro-batches. Is a sum of means a "
        "mean?": edit(MEAN_LOSS, "loss"),
        "The gradients of the micro-batches were added up, and the learning rate was divided. Does "
        "every optimizer make half a step at half the learning rate from twice the gradient?": [
            edit(MEAN_LOSS, "loss", "optimizer.step()", SMALLER_RATE + RESTORED_RATE),
            edit(MEAN_LOSS, "loss", "optimizer.step()", SMALLER_RATE),
        ],
        "The gradient is divided, or multiplied, by the number of ranks. What has DDP done "
        "already: does it add up, or average?": [
            edit("loss / len", f"loss {by} ddp.process_group.size() / len") for by in "/*"
        ],
        "All micro-batches but the last were averaged; the gradient of the last is still this "
        "rank's own. In the end, which backward must send?": edit("number ==", "number <"),
        "The weights are as before. What was in .grad when the optimizer made its step?": edit(
            "optimizer.step()", "optimizer.zero_grad()\n    optimizer.step()"
        ),
    },
    on_pass="the weights of one process after 1 to 3 micro-batches a rank with SGD and AdamW, "
    "every gradient sent once, at 1 to 4 ranks",
)
