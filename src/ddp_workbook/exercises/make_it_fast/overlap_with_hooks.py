"""Average the gradients while backward still computes, as DDP does.

Your function is called once on every rank, with a model that is not in DDP. Afterwards, every step
calls `backward`, and then the function that you return. When that one returns, the `.grad` of each
trained parameter is the mean over the ranks, on every rank.

- Start the all_reduce of a gradient as soon as backward has made it, and let backward go on.
  `parameter.register_post_accumulate_grad_hook(hook)` calls `hook(parameter)` at that moment.
- The network takes about as long for a layer's gradient as backward computes for a layer. At least
  60 % of the network's time must be hidden behind backward.
- A parameter with `requires_grad=False` has no gradient, and takes no hook.
- There are several steps; `.grad` is None at the beginning of each.
- Send each gradient once, and nothing else.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, edit
from ddp_workbook.judging.comm_comparisons import ONLY_ALL_REDUCE, bytes_sent
from manyranks.network.emulated_work import record_completed_calls

MINUTES = 15
HINTS = [
    "Which argument lets all_reduce return before the sum is there, and what does the call return "
    "then?",
    "The hook starts, and the function that you return waits. Where do you keep what it waits for "
    "in between?",
    "all_reduce adds up. When may you divide: before the call, or after the wait, but not between.",
]


def overlap_with_hooks(model: nn.Module) -> Callable[[], None]:
    """Register hooks that send each gradient; return what waits until each .grad is the mean."""
    ### BEGIN SOLUTION
    started = []

    def send(parameter: nn.Parameter) -> None:
        parameter.grad /= dist.get_world_size()
        started.append(dist.all_reduce(parameter.grad, async_op=True))

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(send)

    def finish() -> None:
        while started:
            started.pop().wait()

    return finish
    ### END SOLUTION


LAYERS, FROZEN, NUMBERS, STEPS = 8, 4, 40_000, 2  # FROZEN is one layer more
ALL_BYTES = STEPS * LAYERS * 4 * NUMBERS
COMPUTE_S = 0.01  # seconds of a layer's backward, in which it needs no processor, as with a GPU
NETWORK = "200 Mbit/s, 0.1 ms"
MIN_HIDDEN, NEGLIGIBLE_HIDDEN, HIDDEN = 0.6, 0.05, "hidden"


class Slow(torch.autograd.Function):
    """Takes COMPUTE_S seconds in backward; the weight's gradient is `value` everywhere."""

    begins: ClassVar[list[float]] = []  # of each layer's backward

    @staticmethod
    def forward(ctx, rows: Tensor, weight: Tensor, value: float) -> Tensor:
        ctx.value, ctx.shape = value, weight.shape
        return rows.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        Slow.begins.append(time.perf_counter())
        time.sleep(COMPUTE_S)
        return gradient, torch.full(ctx.shape, ctx.value), None


class Model(nn.Module):
    """Slow layers, and a frozen one among them, which computes nothing."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.step = rank, 0
        self.layers = nn.ParameterList(
            nn.Parameter(torch.zeros(NUMBERS), requires_grad=layer != FROZEN)
            for layer in range(LAYERS + 1)
        )

    def forward(self, rows: Tensor) -> Tensor:
        for layer, weight in enumerate(self.layers):
            if weight.requires_grad:
                rows = Slow.apply(rows, weight, gradient_value(self.step, layer, self.rank))
        return rows


def gradient_value(step: int, layer: int, rank: int) -> float:
    """The gradient of a layer on a rank, before the average."""
    return 100.0 * (step + 1) + 10 * layer + rank * rank


class Step(NamedTuple):
    """The ends of each gradient, the hidden share of the network's time, and stalls.

    `stalls` is how often a layer began only when the call before it had gone all the way.
    """

    gradients: dict[str, Tensor | None]
    hidden_share: float
    stalls: int


def train_steps(function: Callable, model: Model) -> list[Step]:
    """The function is called, then `backward` and what it has returned, in STEPS steps."""
    from ddp_workbook.judging.in_rank import store_barrier

    finish, steps, records = function(model), [], record_completed_calls()
    for model.step in range(STEPS):
        model.zero_grad()
        loss = model(torch.zeros(1, requires_grad=True)).sum()
        store_barrier()
        Slow.begins.clear()
        records.clear()
        loss.backward()
        backward_end = time.perf_counter()
        finish()
        calls = sorted((record.entry_time, record.end) for record in records)
        gradient_extremes = {
            name: extremes(parameter.grad) for name, parameter in model.named_parameters()
        }
        steps.append(
            Step(gradient_extremes, hidden_share(calls, backward_end), count_stalls(calls))
        )
    return steps


def extremes(gradient: Tensor | None) -> Tensor | None:
    """The least and the largest number of a gradient."""
    return None if gradient is None else torch.stack(gradient.aminmax())


def hidden_share(calls: list[tuple[float, float]], backward_end: float) -> float:
    """The share of the time in which something travels that is over before backward is."""
    free, total, hidden = 0.0, 0.0, 0.0
    for entered, end in calls:
        start = max(entered, free)  # one port: calls queue
        total += end - start
        hidden += max(0.0, min(end, backward_end) - start)
        free = end
    return hidden / total if total else 0.0


def count_stalls(calls: list[tuple[float, float]]) -> int:
    """How often a call was entered after a layer, and over before the next layer began."""
    return sum(
        any(before < entered and end <= begin for entered, end in calls)
        for before, begin in pairwise(Slow.begins)
    )


def expected_extremes(layer: int, step: int, size: int) -> Tensor | None:
    """The mean over the ranks."""
    if layer == FROZEN:
        return None
    mean = sum(gradient_value(step, layer, rank) for rank in range(size)) / size
    return torch.tensor([mean, mean])


def gradients(obs: Observation) -> dict[str, Tensor | None]:
    """The ends of each gradient in each step."""
    return {
        f"{name} in step {number}": extremes
        for number, step in enumerate(obs.actual, start=1)
        for name, extremes in step.gradients.items()
    }


def bottleneck(obs: Observation) -> str:
    """Who waits for the network, in the best step of any rank: a busy machine disturbs others."""
    steps = [step for rank_obs in obs.all_ranks for step in rank_obs.actual]
    if obs.size == 1:
        return HIDDEN
    if min(step.stalls for step in steps) > LAYERS / 2:
        return "backward"
    if share(obs) >= MIN_HIDDEN:
        return HIDDEN
    return "finish, for some" if share(obs) > NEGLIGIBLE_HIDDEN else "finish, for all"


def share(obs: Observation) -> float:
    """The largest hidden share of any step."""
    return max(step.hidden_share for rank_obs in obs.all_ranks for step in rank_obs.actual)


CHECK = DistributedCheck(
    cases=lambda size: [size],
    call_text="finish = overlap_with_hooks(model), then backward() and finish() in two steps",
    make_args=lambda size, rank: (Model(rank),),
    caller=train_steps,
    observe=lambda returned, model: returned,
    network=NETWORK,
    compare={
        "operations": ONLY_ALL_REDUCE,
        "gradients": Comparison(
            "Whose gradients are in this one, how often, and by what is it divided? May "
            "your lines use it before the wait, and what do they keep from the step before?",
            lambda size: {
                f"layers.{layer} in step {step + 1}": expected_extremes(layer, step, size)
                for step in range(STEPS)
                for layer in range(LAYERS + 1)
            },
            select=gradients,
            actual="the numbers of {part} lie between {value} {where}",
        ),
        "bytes": bytes_sent(
            ALL_BYTES,
            "means",
            hint="Is a gradient sent twice, in another dtype, or are zeros sent beside it?",
            required="{expected} bytes: each gradient once a step",
        ),
        "hidden": Comparison(
            "Which gradients are sent late? Each could travel as soon as it is there.",
            HIDDEN,
            select=bottleneck,
            actual=lambda obs: (
                "the right means, but backward waits for the network"
                if obs.value == "backward"
                else f"the right means, but {share(obs):.0%} of the network's time is hidden"
            ),
            required=f"at least {MIN_HIDDEN:.0%} hidden behind a backward that does not wait",
            timing_dependent=True,
        ),
    },
    mistakes={
        "Backward stands still until each sum is there. Which call waits in your hook?": [
            edit(
                "started.append(dist.all_reduce(parameter.grad, async_op=True))",
                "dist.all_reduce(parameter.grad)",
            ),
        ],
        "Nothing is sent before finish. What could the hook do already?": edit(
            "        parameter.grad /= dist.get_world_size()\n"
            "        started.append(dist.all_reduce(parameter.grad, async_op=True))",
            "        started.append(parameter)",
            "            started.pop().wait()",
            "            one = started.pop()\n            one.grad /= "
            "dist.get_world_size()\n            dist.all_reduce(one.grad)",
        ),
        "This is the sum over the ranks. By what is it divided, and when?": edit(
            "        parameter.grad /= dist.get_world_size()\n", ""
        ),
        "This is the rank's own gradient. Was it sent, and into which tensor does all_reduce "
        "write?": [
            edit(
                "        parameter.grad /= dist.get_world_size()\n"
                "        started.append(dist.all_reduce(parameter.grad, async_op=True))",
                "        pass",
            ),
            edit(
                "        parameter.grad /= dist.get_world_size()\n"
                "        started.append(dist.all_reduce(parameter.grad, async_op=True))",
                "        started.append(dist.all_reduce(parameter.grad.clone(), async_op=True))",
            ),
        ],
        "It was divided, but it is the rank's own. Into which tensor does all_reduce write?": edit(
            "all_reduce(parameter.grad,", "all_reduce(parameter.grad.clone(),"
        ),
    },
    errors={
        "'NoneType' object is not callable": "What does your function return? The caller calls it "
        "after each backward.",
        "unsupported operand type(s) for /=": "This hook runs before the gradient is in `.grad`. "
        "Which hook comes after that?",
        "doesn't require gradient": "A frozen parameter takes no hook. Which parameters are "
        "trained?",
    },
    on_pass="the right means in each step, with at least 60 % of the network's time hidden behind "
    "backward, at 1 to 4 ranks",
)
