"""Take one step in float16 with DDP, or skip it on all ranks together.

Your function is called on all ranks. Each rank has the same number of micro-batches, at least one,
and all micro-batches have the same number of rows.

- Forward and loss run under `torch.autocast` in float16, on the device that the images are on.
- The gradient is that of the mean `F.cross_entropy` over all rows of all ranks. Its norm is clipped
  to `most`. `.grad` may still hold what an earlier step left there; it must not count.
- `scaler` is a `torch.amp.GradScaler`. The loss is scaled by it, so that small gradients survive.
- If a gradient is inf or nan on one rank, no rank makes a step, and all ranks halve their scale.
- DDP sends each gradient once, not once for each micro-batch. Nothing else is sent.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_workbook.judging import Comparison, DistributedCheck, edit
from ddp_workbook.judging.micro_batches import (
    SHARED_MISTAKES,
    gradients_sent_once,
    micro_batch,
    wrap_in_ddp,
)

MINUTES = 15
HINTS = [
    "Begin with a step without 16 bits: accumulate under no_sync, clip, step. Which lines need "
    "autocast, and which need the scaler?",
    "scaler.scale makes the loss larger, and backward makes larger gradients. Clipping needs the "
    "real ones: what does unscale_ do, and how often may it be called in a step?",
    "DDP adds inf of one rank to the numbers of all others. So who sees it, after the last "
    "backward? Leave it to scaler.step to decide, on every rank.",
]


def mixed_step(
    ddp: DistributedDataParallel,
    micro_batches: list[tuple[Tensor, Tensor]],
    optimizer: Optimizer,
    scaler: GradScaler,
    most: float,
) -> None:
    """Take one step on all `micro_batches` of all ranks; each is (images [rows, 4], labels)."""
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(micro_batches, start=1):
        last = number == len(micro_batches)
        with nullcontext() if last else ddp.no_sync():
            with torch.autocast(images.device.type, torch.float16):
                loss = F.cross_entropy(ddp(images), labels) / len(micro_batches)
            scaler.scale(loss).backward()  # the last one sends the sum of all
    scaler.unscale_(optimizer)  # once; clipping needs the real gradients
    nn.utils.clip_grad_norm_(ddp.parameters(), most)
    scaler.step(optimizer)  # makes no step if a gradient is inf or nan, as on all other ranks
    scaler.update()
    ### END SOLUTION


INITIAL_WEIGHTS = torch.linspace(-1, 1, 15)  # weight [3, 4] and bias [3], flat
RATE, SCALE = 1.0, 2.0**10
OVERFLOW_FACTOR = 1e6  # in float16 such an image is inf


class Step(NamedTuple):
    """A call: its number, micro-batches, their rows, the largest norm, the rank that overflows."""

    number: int
    batches: int
    rows: int
    most: float
    overflow_rank: int | None = None


def steps(size: int) -> list[Step]:
    """Steps that are clipped and steps that are not; in two of them a rank overflows."""
    return [
        Step(0, 3, 4, most=0.25),
        Step(1, 2, 4, most=100.0),
        Step(2, 3, 2, most=0.25, overflow_rank=size - 1),
        Step(3, 1, 4, most=0.25),
        Step(4, 2, 4, most=100.0, overflow_rank=0),
    ]


def make_args(step: Step, rank: int) -> tuple:
    """A model in DDP, the rank's micro-batches, an optimizer, a scaler, and the largest norm."""
    model = nn.Linear(4, 3)
    ddp = wrap_in_ddp(model, INITIAL_WEIGHTS, old_gradient=0.5 * SCALE)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    ddp.formats, ddp.steps = set(), []
    ddp.register_forward_hook(lambda _, __, scores: ddp.formats.add(str(scores.dtype)[6:]))
    optimizer.register_step_post_hook(lambda *_: ddp.steps.append("a step"))
    batches = [micro_batch(model, step.rows, step.number, rank, n) for n in range(step.batches)]
    if step.overflow_rank == rank:
        images, labels = batches[0]
        batches[0] = (images * OVERFLOW_FACTOR, labels)
    return ddp, batches, optimizer, GradScaler("cpu", init_scale=SCALE), step.most


def observe(_: None, ddp: DistributedDataParallel, *rest: Any) -> dict:
    """How many steps, the weights' change, the scale, and the formats that were computed in."""
    after = nn.utils.parameters_to_vector(ddp.module.parameters()).detach()
    return {
        "optimizer steps": len(ddp.steps),
        "change of the weights": after - INITIAL_WEIGHTS,
        "scale afterwards": rest[2].get_scale(),
        "formats of the scores": sorted(ddp.formats),
    }


def near(actual: Tensor, expected: Tensor) -> bool:
    """Equal but for the rounding of float16, which depends on the order of additions."""
    return torch.allclose(actual, expected, rtol=0.01, atol=0.004, equal_nan=True)


UNSCALE = "    scaler.unscale_(optimizer)  # once; clipping needs the real gradients\n"
CLIP = "    nn.utils.clip_grad_norm_(ddp.parameters(), most)\n"
STEP = "scaler.step(optimizer)  # makes no step if a gradient is inf or nan, as on all other ranks"
BACKWARD = "            scaler.scale(loss).backward()  # the last one sends the sum of all\n"
AUTOCAST = "            with torch.autocast(images.device.type, torch.float16):\n"
CHECK = DistributedCheck(
    cases=steps,
    call_text=lambda step: (
        f"mixed_step(ddp, micro_batches, optimizer, scaler, most={step.most:g}), with "
        f"{step.batches} micro-batch{'es' * (step.batches > 1)} of {step.rows} rows on each rank"
        + (
            f"; one of rank {step.overflow_rank} overflows"
            if step.overflow_rank is not None
            else ""
        )
    ),
    make_args=make_args,
    observe=observe,
    compare={
        "formats of the scores": Comparison(
            "Which lines must run under autocast, and in which format?", ["float16"]
        ),
        "optimizer steps": Comparison(
            "Who decides on this rank whether there is a step, and what does it look at?",
            lambda step: int(step.overflow_rank is None),
        ),
        "change of the weights": Comparison(
            "Which rows are in this gradient, by what is it divided, and which norm was clipped?",
            required="{expected} {there}, but for the rounding of float16",
            equal=near,
        ),
        "scale afterwards": "Which call changes the scale, and how often does it come in a step?",
        "bytes": gradients_sent_once(
            INITIAL_WEIGHTS,
            "Which lines sent that? DDP sends in a backward outside of no_sync, and inf travels "
            "with the gradients.",
        ),
    },
    mistakes={
        **SHARED_MISTAKES,
        "The forward runs in float32. Which lines belong under autocast, and for which device?": (
            edit(AUTOCAST, "            if True:\n")
        ),
        "Without a format, autocast takes bfloat16 on a CPU. Where do you ask for another?": (
            edit(", torch.float16", "")
        ),
        "The norm that was clipped is that of the scaled gradients. What makes them the real ones, "
        "and when?": [
            edit(UNSCALE, ""),
            edit(UNSCALE + CLIP, CLIP + UNSCALE),
        ],
        "Nothing was clipped. Where do you use `most`?": edit(CLIP, ""),
        "The step is too short by the scale: unscale_ has divided by it. Which loss does backward "
        "begin at?": edit(
            BACKWARD, "            scaler.scale(loss)\n            loss.backward()\n"
        ),
        "The gradients were clipped after each micro-batch. Which gradient is the norm of?": edit(
            CLIP,
            "",
            BACKWARD,
            "            scaler.scale(loss).backward()\n"
            "            nn.utils.clip_grad_norm_(ddp.parameters(), most * scaler.get_scale())\n",
        ),
        "Each number was cut off for itself. What is the norm of a gradient?": edit(
            "clip_grad_norm_", "clip_grad_value_"
        ),
        "The optimizer was called directly, and made a step with inf or nan. Who looks at the "
        "gradients first?": edit(STEP, "optimizer.step()"),
        "The scale is as it was, although there was an overflow. Which call changes it?": edit(
            "    scaler.update()\n", ""
        ),
        "The step is too long, by a factor of the number of micro-batches. Is a sum of means a "
        "mean?": edit(" / len(micro_batches)", ""),
        "No step was made. Who calls the optimizer?": edit(STEP, "pass"),
    },
    errors={
        "Attempted unscale_ but _scale is None": "No loss was scaled. Which loss needs backward?",
        "unscale_() has already been called": "unscale_ divides by the scale. How often may that "
        "happen to one gradient?",
        "No inf checks were recorded": "scaler.update looks at what scaler.step, or unscale_, has "
        "found. Which of them has run for this optimizer?",
        "Attempting to unscale FP16 gradients": "The parameters must stay in float32. Which line "
        "has changed the model?",
    },
    on_pass="the step of one process in float16 with 1 to 3 micro-batches a rank, scaled, "
    "clipped and sent once, and skipped by all ranks if one overflows, at 1 to 4 ranks",
)
