"""Three formats of numbers: what they hold of gradients, what a loss scale saves, and who skips."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import CLASSES, PIXELS, DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint
from manyranks.launcher.launch import launch

WIDTH, DEPTH, ROWS = 64, 6, 512  # of the network whose gradients shrink from layer to layer
STEPS, RATE = 80, 0.01
OVERFLOW_FACTOR = 1e6  # images times this overflow in float16
TRAINING_FORMATS = {  # what a training computes in, and whether it scales its loss
    "float32": (torch.float32, False),
    "float16": (torch.float16, False),
    "float16, loss scaled": (torch.float16, True),
    "bfloat16": (torch.bfloat16, False),
}


class Run(NamedTuple):
    """One training: for each step its loss, and the scale that was used; the steps it skipped.

    `zeros` is the share of the first layer's gradient that is 0 in the first step, 0 to 1.
    """

    losses: list[float]
    scales: list[float]
    skipped_steps: list[int]
    zeros: float


def deep_sigmoids() -> nn.Sequential:
    """A network of the time before ReLU: a sigmoid takes at least three quarters of a gradient."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs in [len(PIXELS)] + [WIDTH] * (DEPTH - 1):
        layers += [nn.Linear(inputs, WIDTH), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def step(
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    dtype: torch.dtype,
) -> Tensor:
    """One training step with autocast; the order of its lines matters. The loss, not scaled."""
    images, labels = batch
    optimizer.zero_grad()
    with torch.autocast(images.device.type, dtype, enabled=dtype != torch.float32):
        loss = F.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()  # larger gradients, which float16 can hold
    scaler.unscale_(optimizer)  # the real ones again, in float32
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)  # no step if a gradient is inf or nan
    scaler.update()  # half the scale after an overflow, twice after many steps without
    return loss.detach()


def trainings() -> dict[str, Run]:
    """Four trainings of `deep_sigmoids`, one for each entry of HOW, at the same time."""
    return dict(
        zip(
            TRAINING_FORMATS,
            launch(training_of_this_rank, ranks=len(TRAINING_FORMATS)),
            strict=True,
        )
    )


def training_of_this_rank() -> Run:
    """A worker: rank r trains alone, in the format of entry r of HOW."""
    return train(*list(TRAINING_FORMATS.values())[int(os.environ["RANK"])])


def train(
    dtype: torch.dtype, scaled: bool, scale: float = 2.0**16, growth: int = 2000, steps: int = STEPS
) -> Run:
    """`steps` steps with Adam on random digits; scale and growth are torch's own defaults."""
    digits, model = DigitsDataset(), deep_sigmoids()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    scaler = torch.amp.GradScaler("cpu", scale, growth_interval=growth, enabled=scaled)
    losses: list[float] = []
    scales: list[float] = []
    optimizer_steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: optimizer_steps.append(len(losses)))
    zeros = 1.0
    for number in range(steps):
        rows = torch.randperm(len(digits))[:ROWS]
        scales.append(scaler.get_scale())
        batch = digits.images[rows], digits.labels[rows]
        losses.append(step(model, batch, optimizer, scaler, dtype).item())
        if number == 0:
            zeros = (model[0].weight.grad == 0).float().mean().item()
    skipped_steps = sorted(set(range(steps)) - set(optimizer_steps))
    return Run(losses, scales, skipped_steps, zeros)


@figures.house_style
def losses(runs: dict[str, Run]) -> figures.Picture:
    """A line for each training."""
    table = pd.DataFrame({name: run.losses for name, run in runs.items()}).rename_axis("step")
    picture = figures.lines(table, "loss of the batch", "The same training in three formats")
    for name, run in runs.items():
        picture.alt += f" {name}: {run.zeros:.0%} of the first layer's gradient is 0 at the start."
    return picture


@figures.house_style
def scales(run: Run) -> figures.Picture:
    """The scale of each step; a cross marks a step that was skipped."""
    table = pd.DataFrame({"scale": run.scales}).rename_axis("step")
    picture = figures.lines(table, "scale of the loss", "The scale that GradScaler used", log="y")
    crosses = [run.scales[step] for step in run.skipped_steps]
    picture.axes.plot(run.skipped_steps, crosses, "X", color=INK, label="skipped")
    picture.axes.set_yscale("log", base=2)
    picture.update_legend()
    picture.alt += f" Skipped: steps {', '.join(map(str, run.skipped_steps)) or 'none'}."
    return picture


class Outcome(NamedTuple):
    """What one rank has seen of a step: a finite .grad, an optimizer step, the scale afterwards."""

    finite: bool
    stepped: bool
    scale: float
    weights: Tensor


def overflow_on_rank_1(synchronised: bool, steps: int = 3) -> list[Outcome]:
    """A worker: float16 steps with DDP; in the second one rank 1's images are far too large.

    Without `synchronised`, forward and backward stand in `no_sync`, so that no gradient is sent.
    """
    device, digits, history = setup(), DigitsDataset(), []
    torch.manual_seed(0)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    ddp.require_backward_grad_sync = synchronised  # what no_sync sets
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type)
    optimizer_steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: optimizer_steps.append(1))
    rank, size = dist.get_rank(), dist.get_world_size()
    for number in range(steps):
        mine = slice(64 * number + rank, 64 * (number + 1), size)
        images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
        before = len(optimizer_steps)
        too_large = OVERFLOW_FACTOR if (number, rank) == (1, 1) else 1.0
        step(ddp, (images * too_large, labels), optimizer, scaler, torch.float16)
        gradients = torch.cat([parameter.grad.flatten() for parameter in ddp.parameters()])
        weights = nn.utils.parameters_to_vector(ddp.parameters()).detach().cpu()
        finite = bool(gradients.isfinite().all())
        history.append(Outcome(finite, len(optimizer_steps) > before, scaler.get_scale(), weights))
    del ddp
    cleanup()
    return history


def outcomes(of_ranks: Sequence[Sequence[Outcome]]) -> pd.DataFrame:
    """A row for each step and rank, and by how much its weights differ from rank 0's afterwards."""
    rows = {
        (number, f"rank {rank}"): {
            "finite .grad": outcome.finite,
            "step made": outcome.stepped,
            "scale afterwards": int(outcome.scale),
            "weights apart": (outcome.weights - of_ranks[0][number].weights).abs().max().item(),
        }
        for number in range(len(of_ranks[0]))
        for rank, outcome in enumerate(of_rank[number] for of_rank in of_ranks)
    }
    return pd.DataFrame(rows).T.rename_axis(["step", ""])


# The formats on one line


FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def smallest(dtype: torch.dtype) -> float:
    """The smallest number above 0 that the format has; below half of it, 0 is nearer."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps


def gradients() -> Tensor:
    """Every gradient of a deep network in its first step, in float32, flat, without zeros."""
    digits, model = DigitsDataset(), deep_sigmoids()
    F.cross_entropy(model(digits.images[:ROWS]), digits.labels[:ROWS]).backward()
    flat = nn.utils.parameters_to_vector([parameter.grad for parameter in model.parameters()])
    return flat[flat != 0]


def format_table(values: Tensor) -> pd.DataFrame:
    """A row for each format: its limits, and what becomes of float32 `values` [n] in it.

    `becomes 0` is a share of the values, 0 to 1. `digits` is how many decimal digits a number has,
    from the distance of neighbours: eps of `torch.finfo`. The error is relative.
    """
    rows = {}
    for name, dtype in FORMATS.items():
        info, rounded = torch.finfo(dtype), values.to(dtype).float()
        nonzero, errors = rounded != 0, (rounded / values - 1).abs()
        rows[name] = {
            "bits": info.bits,
            "largest": f"{info.max:.1e}",
            "smallest": f"{smallest(dtype):.1e}",
            "digits": f"{-math.log10(info.eps):.1f}",
            "becomes 0": f"{1 - nonzero.float().mean().item():.1%}",
            "median error of the rest": f"{errors[nonzero].median().item():.1g}",
        }
    return pd.DataFrame(rows).T


@figures.house_style
def number_line(values: Tensor) -> figures.Picture:
    """Above, how large `values` [n] are; below, the range of each format on the same axis.

    A range is pale where the format loses digits: below its smallest normal number.
    """
    figure = figures.Figure((figures.WIDTH, 3.9), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.6, 1))
    powers = values.abs().log10()
    counts, edges = torch.histogram(powers, bins=60)
    above.stairs(counts / len(values), edges, fill=True, color=series_colour(2))
    above.set(ylabel="share of gradients")
    for row, dtype in enumerate(FORMATS.values()):
        info = torch.finfo(dtype)
        ends = [math.log10(limit) for limit in (smallest(dtype), info.smallest_normal, info.max)]
        colour = series_colour((0, 5, 3)[row])
        below.barh(row, ends[1] - ends[0], left=ends[0], height=0.6, color=tint(colour, 0.4))
        below.barh(row, ends[2] - ends[1], left=ends[1], height=0.6, color=colour)
    threshold = math.log10(smallest(torch.float16) / 2)
    for axes in (above, below):
        axes.axvline(threshold, color=INK, linestyle="--", linewidth=1)
    share = (powers < threshold).float().mean().item()
    words = f"{share:.0%} become 0 in float16 "
    above.text(threshold, above.get_ylim()[1], words, ha="right", va="top", size=9)
    figures.label_rows(below, list(FORMATS))
    ticks = range(-45, 46, 5)
    below.set_xticks(ticks, [f"$10^{{{power}}}$" for power in ticks], size=9)
    below.set_xlabel("absolute value; pale: with fewer digits")
    return figures.Picture(figure, _words(powers, share))


def _words(powers: Tensor, share: float) -> str:
    ranges = "; ".join(
        f"{name} from {smallest(dtype):.1e} to {torch.finfo(dtype).max:.1e}, with all its digits "
        f"from {torch.finfo(dtype).smallest_normal:.1e}"
        for name, dtype in FORMATS.items()
    )
    low, middle, high = 10.0 ** torch.quantile(powers, torch.tensor([0.0, 0.5, 1.0]))
    return (
        f"Three formats on one number line: {ranges}. Above them, the gradients of a deep network: "
        f"from {low:.0e} to {high:.0e}, half of them below {middle:.0e}. {share:.0%} of them are "
        "below the line under which float16 has only 0."
    )
