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
- Leave the settings of `ddp` and `optimizer`, such as the learning rate, as you found them.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_workbook.exercises import Look, OnRanks, Seen, When

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

    def add_gradients(images: Tensor, labels: Tensor) -> None:
        loss = F.cross_entropy(ddp(images), labels)
        (loss / len(micro_batches)).backward()

    optimizer.zero_grad()
    with ddp.no_sync():  # the forward as well: there DDP decides whether backward will send
        for micro_batch in micro_batches[:-1]:
            add_gradients(*micro_batch)
    add_gradients(*micro_batches[-1])  # sends the sum of all
    optimizer.step()
    ### END SOLUTION


RATE = 0.5
BEGIN = torch.linspace(-1, 1, 8, dtype=torch.float64)  # weight [2, 3] and bias [2], flat
BYTES = BEGIN.nbytes


class Step(NamedTuple):
    """A call: its number, the micro-batches of each rank, the rows of each, and the world size."""

    number: int
    count: int
    rows: int
    size: int


def micro_batch(step: Step, rank: int, which: int) -> tuple[Tensor, Tensor]:
    """Images and labels; no micro-batch is like another one."""
    start = 7 * step.number + 5 * rank + 3 * which
    numbers = torch.arange(step.rows * 3, dtype=torch.float64).reshape(step.rows, 3)
    labels = torch.tensor([(start + row) // 2 % 2 for row in range(step.rows)])
    return torch.sin(numbers * (start + 2)) * (1 + rank), labels


def old_gradient(rank: int) -> Tensor:
    """What an earlier step has left."""
    return torch.full_like(BEGIN, 1.5 + rank)


@cache
def gradient(step: Step, rank: int, which: int) -> Tensor:
    """The gradient of one micro-batch's mean loss, flat."""
    images, labels = micro_batch(step, rank, which)
    scores = images @ BEGIN[:6].view(2, 3).T + BEGIN[6:]
    error = (scores.softmax(dim=1) - F.one_hot(labels, 2)) / len(labels)
    return torch.cat([(error.T @ images).flatten(), error.sum(dim=0)])


def own(step: Step, rank: int, which: range | None = None) -> Tensor:
    """The gradients of a rank's micro-batches, or of some of them, added up and divided by all."""
    chosen = range(step.count) if which is None else which
    zero = torch.zeros_like(BEGIN)
    return sum((gradient(step, rank, one) for one in chosen), zero) / step.count


def mean(step: Step, which: range | None = None) -> Tensor:
    """The mean of `own` over the ranks."""
    return sum(own(step, rank, which) for rank in range(step.size)) / step.size


def after(gradient: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The weights after one step with that gradient, which takes (step, rank)."""
    return lambda step, rank: BEGIN - RATE * gradient(step, rank)


def arguments(step: Step, rank: int) -> tuple:
    """A model in DDP, which notes what goes through it; the rank's micro-batches; an optimizer."""
    model = nn.Linear(3, 2, dtype=torch.float64)
    nn.utils.vector_to_parameters(BEGIN.clone(), model.parameters())
    ddp = DistributedDataParallel(model)
    for parameter, old in zip(model.parameters(), old_gradient(rank).split([6, 2]), strict=True):
        parameter.grad = old.view_as(parameter).clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    ddp.noted = []
    ddp.register_forward_pre_hook(lambda *_: note(ddp, "forward"))
    model.bias.register_hook(lambda _: note(ddp, "backward"))
    optimizer.register_step_post_hook(lambda *_: note(ddp, "step"))
    return ddp, [micro_batch(step, rank, which) for which in range(step.count)], optimizer


def note(ddp: DistributedDataParallel, what: str) -> None:
    """Note what is done, and whether it is done outside of no_sync."""
    ddp.noted.append((what, ddp.require_backward_grad_sync))


def seen_of(_: None, ddp: DistributedDataParallel, *rest: object) -> dict:
    """The final weights, what was done in which order, and the settings afterwards."""
    optimizer = rest[-1]
    return {
        "weights": nn.utils.parameters_to_vector(ddp.module.parameters()),
        "done": [what for what, _ in ddp.noted],
        "noted": ddp.noted,
        "settings": {
            "the learning rate": optimizer.param_groups[0]["lr"],
            "ddp.require_backward_grad_sync": ddp.require_backward_grad_sync,
        },
    }


def outside(seen: Seen, what: str) -> list[bool]:
    """For each forward, or backward, whether it was outside of no_sync."""
    return [sync for one, sync in seen.came["noted"] if one == what]


DONE = Look(
    of=lambda seen: seen.came["done"],
    right=lambda step: ["forward", "backward"] * step.count + ["step"],
    mistakes={
        "ddp was not called. DDP sees only what goes through it: which model gets the images?": (
            lambda step: ["backward"] * step.count + ["step"]
        ),
        "Only the last micro-batch went through ddp. Which model gets the images of the others?": (
            lambda step: ["backward"] * (step.count - 1) + ["forward", "backward", "step"]
        ),
        "All rows were in memory at once. Where are the micro-batches put together again?": (
            lambda step: ["forward", "backward", "step"]
        ),
        "One backward for all keeps the graphs of all micro-batches in memory. When could the "
        "first one be freed?": lambda step: ["forward"] * step.count + ["backward", "step"],
        "All forwards come first, so all graphs are in memory at once. When could the first one "
        "be freed?": (lambda step: ["forward"] * step.count + ["backward"] * step.count + ["step"]),
        "There is an optimizer step for each micro-batch. With which weights are the later "
        "gradients computed then?": lambda step: ["forward", "backward", "step"] * step.count,
        "The optimizer has made no step. Where do you call it?": (
            lambda step: ["forward", "backward"] * step.count
        ),
    },
    otherwise="Which of these calls is missing, or comes too often?",
    came="on rank {rank}: {value}",
    required="{right}",
    words=", ".join,
)

WEIGHTS = Look(
    of=lambda seen: seen.came["weights"],
    right=after(lambda step, rank: mean(step)),
    mistakes={
        "Each rank has made a step with its own gradients. DDP averages in a backward outside of "
        "no_sync: which one was that?": after(own),
        "The step is too long, by a factor of the number of micro-batches. Is a sum of means a "
        "mean?": after(lambda step, rank: mean(step) * step.count),
        "Each rank has made a step with the sum of its own gradients. Which backward lets DDP "
        "average, and what turns the sum into a mean?": after(
            lambda step, rank: own(step, rank) * step.count
        ),
        "The step is divided by the number of ranks, too. What has DDP done already?": after(
            lambda step, rank: mean(step) / step.size
        ),
        "The step is multiplied by the number of ranks. Does DDP add up, or average?": after(
            lambda step, rank: mean(step) * step.size
        ),
        "What an earlier step left in .grad is in this step, too. Where do you clear it?": after(
            lambda step, rank: (
                mean(step) + sum(old_gradient(one) for one in range(step.size)) / step.size
            )
        ),
        "Only the last micro-batch is in this step. Where are the gradients of the others "
        "cleared?": after(lambda step, rank: mean(step, range(step.count)[-1:])),
        "Only the last micro-batch is in this step, with its full weight. Where did the gradients "
        "of the others go?": after(
            lambda step, rank: mean(step, range(step.count)[-1:]) * step.count
        ),
        "Only the first micro-batch was averaged over the ranks. After which one are all gradients "
        "in .grad?": after(
            lambda step, rank: mean(step, range(1)) + own(step, rank, range(1, step.count))
        ),
        "All micro-batches but the last were averaged; the gradient of the last is still this "
        "rank's own. In the end, which backward must send?": after(
            lambda step, rank: (
                mean(step, range(step.count - 1)) + own(step, rank, range(step.count)[-1:])
            )
        ),
        "The weights are as before. What was in .grad when the optimizer made its step?": BEGIN,
    },
    otherwise="Which micro-batches of which ranks are in this step, and by what is each divided?",
)

WIRE = Look(  # but for the broadcasts in which DDP agrees on its buckets after a first backward
    of=lambda seen: sum(row["bytes"] for row in seen.wire if row["op"] != "broadcast"),
    right=BYTES,
    mistakes={
        "Nothing was sent. DDP averages in a backward outside of no_sync: which one was that?": 0,
        "no_sync was on in this backward, but not in the forward before it, where DDP decides. "
        "Which lines belong inside?": When(
            lambda seen: any(map(int.__gt__, outside(seen, "forward"), outside(seen, "backward")))
        ),
        "DDP sent every gradient once, and then there was more. What is that for?": When(
            lambda seen: sum(outside(seen, "forward")) == 1
        ),
        "Every backward sends all gradients. How do you keep DDP from sending until all are added "
        "up?": When(lambda seen: all(outside(seen, "forward"))),
    },
    otherwise="Which lines sent that, and which backward must send?",
    came=lambda seen: (
        f"the right weights, but rank {seen.rank} has sent {seen.value} bytes "
        f"({', '.join(seen.ops) or 'nothing'})"
    ),
    required="{right} bytes on every rank, which are all gradients once",
)

BY_DDP = Look(
    of=lambda seen: any(outside(seen, "forward")),
    right=True,
    otherwise="Is the averaging done by hand? DDP does it while backward is still computing. Which "
    "forward must be outside of no_sync?",
    came="the right weights, but no backward on rank {rank} has let DDP send",
    required="DDP sends the gradients",
)

SETTINGS = Look(
    of=lambda seen: seen.came["settings"],
    right={"the learning rate": RATE, "ddp.require_backward_grad_sync": True},
    otherwise="The caller's next steps depend on this setting. Which line changes it?",
    came="the right weights, but {part} is {value} afterwards",
    required="{part} is {right}, as before",
)

CHECK = OnRanks(
    cases=lambda size: [Step(0, 3, 2, size), Step(1, 1, 4, size), Step(2, 2, 3, size)],
    called=lambda step: (
        f"accumulate(ddp, micro_batches, optimizer), with {step.count} "
        f"micro-batch{'es' * (step.count > 1)} of {step.rows} rows on each rank"
    ),
    given=arguments,
    observe=seen_of,
    looks=[DONE, WEIGHTS, WIRE, BY_DDP, SETTINGS],
    proves="the weights of one process after 1 to 3 micro-batches a rank, every gradient sent "
    "once, at 1 to 4 ranks",
)
