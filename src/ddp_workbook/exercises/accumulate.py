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

from ddp_workbook.exercises import Look, OnRanks, Seen, When, body, edit

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


BEGIN = torch.linspace(-1, 1, 8, dtype=torch.float64)  # weight [2, 3] and bias [2], flat
RATE = 0.5


class Step(NamedTuple):
    """A call: its number, how many micro-batches each rank has, their rows, and the optimizer."""

    number: int
    batches: int
    rows: int
    optimizer: type[Optimizer] = torch.optim.SGD


def arguments(step: Step, rank: int) -> tuple:
    """A model in DDP, which notes what goes through it; the rank's micro-batches; an optimizer."""
    model = nn.Linear(3, 2, dtype=torch.float64)
    nn.utils.vector_to_parameters(BEGIN.clone(), model.parameters())
    ddp = DistributedDataParallel(model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1.5 + rank)  # what an earlier step has left
    optimizer = step.optimizer(model.parameters(), lr=RATE)
    ddp.noted = []
    ddp.register_forward_pre_hook(lambda *_: note(ddp, "forward"))
    model.bias.register_hook(lambda _: note(ddp, "backward"))
    optimizer.register_step_post_hook(lambda *_: note(ddp, "step"))
    return ddp, [micro_batch(step, rank, which) for which in range(step.batches)], optimizer


def micro_batch(step: Step, rank: int, which: int) -> tuple[Tensor, Tensor]:
    """Images and labels; no micro-batch is like another one."""
    start = 7 * step.number + 5 * rank + 3 * which
    numbers = torch.arange(step.rows * 3, dtype=torch.float64).reshape(step.rows, 3)
    labels = torch.tensor([(start + row) // 2 % 2 for row in range(step.rows)])
    return torch.sin(numbers * (start + 2)) * (1 + rank), labels


def note(ddp: DistributedDataParallel, what: str) -> None:
    """Note what is done, and whether it is done outside of no_sync."""
    ddp.noted.append((what, ddp.require_backward_grad_sync))


def seen_of(_: None, ddp: DistributedDataParallel, __: list, optimizer: Optimizer) -> dict:
    """The final weights, what was done in which order, and the settings afterwards."""
    return {
        "weights": nn.utils.parameters_to_vector(ddp.module.parameters()),
        "noted": ddp.noted,
        "settings": {
            "the learning rate": optimizer.param_groups[0]["lr"],
            "ddp.require_backward_grad_sync": ddp.require_backward_grad_sync,
        },
    }


def outside(seen: Seen, what: str) -> int:
    """How many forwards, or backwards, were outside of no_sync."""
    return seen.actual["noted"].count((what, True))


DIVIDED = "(loss / len(micro_batches))"
IN_THE_LOOP = "        optimizer.zero_grad()\n        last ="
LESS = "optimizer.param_groups[0]['lr'] /= len(micro_batches)\n    optimizer.step()"
MORE = "\n    optimizer.param_groups[0]['lr'] *= len(micro_batches)"
AFTERWARDS = """for parameter in ddp.parameters():
        parameter.grad /= len(micro_batches)
    optimizer.step()"""
CHECK = OnRanks(
    cases=lambda size: [Step(0, 3, 2), Step(1, 1, 4), Step(2, 2, 3, torch.optim.AdamW)],
    called=lambda step: (
        f"accumulate(ddp, micro_batches, optimizer), with {step.optimizer.__name__} and "
        f"{step.batches} micro-batch{'es' * (step.batches > 1)} of {step.rows} rows on each rank"
    ),
    given=arguments,
    observe=seen_of,
    looks=[
        Look(
            of=lambda seen: [what for what, _ in seen.actual["noted"]],
            right=lambda step: ["forward", "backward"] * step.batches + ["step"],
            otherwise="Which of these calls is missing, or comes too often?",
            actual="on rank {rank}: {value}",
            required="{right}",
            words=", ".join,
        ),
        Look(
            of=lambda seen: seen.actual["weights"],
            otherwise="Which micro-batches of which ranks are in this step, and by what is each "
            "divided?",
            actual="the weights are {value} {where}",
            required="{right} {there}",
        ),
        Look(
            of=lambda seen: outside(seen, "forward") > max(1, outside(seen, "backward")),
            right=False,
            otherwise="DDP decides in the forward whether the backward after it will send. Which "
            "lines belong inside no_sync?",
            actual="the right weights, but on rank {rank} a forward was outside of no_sync, and "
            "its backward inside",
            required="both inside, or both outside",
        ),
        Look(  # but for the broadcasts in which DDP agrees on its buckets after a first backward
            of=lambda seen: sum(row["bytes"] for row in seen.wire if row["op"] != "broadcast"),
            right=BEGIN.nbytes,
            mistakes={
                "DDP sent every gradient once, and then there was more. What is that for?": When(
                    lambda seen: outside(seen, "forward") == 1
                ),
            },
            otherwise="Which lines sent that, and which backward must send?",
            actual=lambda seen: (
                f"the right weights, but rank {seen.rank} has sent {seen.value} bytes "
                f"({', '.join(seen.ops) or 'nothing'})"
            ),
            required="{right} bytes on every rank, which are all gradients once",
        ),
        Look(
            of=lambda seen: outside(seen, "forward") > 0,
            right=True,
            otherwise="Is the averaging done by hand? DDP does it while backward is still "
            "computing. Which forward must be outside of no_sync?",
            actual="the right weights, but no backward on rank {rank} has let DDP send",
            required="DDP sends the gradients",
        ),
        Look(
            of=lambda seen: seen.actual["settings"],
            right={"the learning rate": RATE, "ddp.require_backward_grad_sync": True},
            otherwise="The caller's next steps depend on this setting. Which line changes it?",
            actual="the right weights, but {part} is {value} afterwards",
            required="{part} is {right}, as before",
        ),
    ],
    mistakes={
        "ddp was not called. DDP sees only what goes through it: which model gets the images?": (
            edit("ddp(images)", "ddp.module(images)")
        ),
        "Only the last micro-batch went through ddp. Which model gets the images of the others?": (
            edit("ddp(images)", "(ddp if last else ddp.module)(images)")
        ),
        "All rows were in memory at once. Where are the micro-batches put together again?": body("""
            import torch
            images, labels = map(torch.cat, zip(*micro_batches))
            optimizer.zero_grad()
            F.cross_entropy(ddp(images), labels).backward()
            optimizer.step()
        """),
        "One backward for all keeps the graphs of all micro-batches in memory. When could the "
        "first one be freed?": body("""
            losses = [F.cross_entropy(ddp(images), labels) for images, labels in micro_batches]
            optimizer.zero_grad()
            (sum(losses) / len(losses)).backward()
            optimizer.step()
        """),
        "All forwards come first, so all graphs are in memory at once. When could the first one "
        "be freed?": body("""
            with ddp.no_sync():
                losses = [F.cross_entropy(ddp(images), labels) for images, labels in micro_batches]
            for loss in losses:
                loss.backward()
            optimizer.step()
        """),
        "There is an optimizer step for each micro-batch. With which weights are the later "
        "gradients computed then?": edit("    optimizer.step()", "        optimizer.step()"),
        "The optimizer has made no step. Where do you call it?": edit("optimizer.step()", "pass"),
        "Each rank has made a step with its own gradients. DDP averages in a backward outside of "
        "no_sync: which one was that?": edit("nullcontext() if last else", ""),
        "The step is too long, by a factor of the number of micro-batches. Is a sum of means a "
        "mean?": edit(DIVIDED, "loss"),
        "The gradients of the micro-batches were added up, and the learning rate was divided. Does "
        "every optimizer make half a step at half the learning rate from twice the gradient?": [
            edit(DIVIDED, "loss", "optimizer.step()", LESS + MORE),
            edit(DIVIDED, "loss", "optimizer.step()", LESS),
        ],
        "The gradient is divided by the number of ranks, too. What has DDP done already?": edit(
            "loss / len", "loss / ddp.process_group.size() / len"
        ),
        "The gradient is multiplied by the number of ranks. Does DDP add up, or average?": edit(
            "loss / len", "loss * ddp.process_group.size() / len"
        ),
        "What an earlier step left in .grad is in this step, too. Where do you clear it?": [
            edit("    optimizer.zero_grad()\n", ""),
            edit(
                "    optimizer.zero_grad()\n", "", DIVIDED, "loss", "optimizer.step()", AFTERWARDS
            ),
        ],
        "Only the last micro-batch is in this step. Where are the gradients of the others "
        "cleared?": edit("        last =", IN_THE_LOOP),
        "Only the last micro-batch is in this step, with its full weight. Where did the gradients "
        "of the others go?": edit("        last =", IN_THE_LOOP, DIVIDED, "loss"),
        "Only the first micro-batch was averaged over the ranks. After which one are all gradients "
        "in .grad?": edit("number == len(micro_batches)", "number == 1"),
        "All micro-batches but the last were averaged; the gradient of the last is still this "
        "rank's own. In the end, which backward must send?": edit("number ==", "number <"),
        "The weights are as before. What was in .grad when the optimizer made its step?": edit(
            "optimizer.step()", "optimizer.zero_grad()\n    optimizer.step()"
        ),
        "Every backward sends all gradients. How do you keep DDP from sending until all are added "
        "up?": edit("if last else ddp.no_sync()", ""),
    },
    proves="the weights of one process after 1 to 3 micro-batches a rank with SGD and AdamW, every "
    "gradient sent once, at 1 to 4 ranks",
)
