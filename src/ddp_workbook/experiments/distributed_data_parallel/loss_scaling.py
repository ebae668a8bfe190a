"""float16 with and without a loss scale, on one rank and on two: what is lost, and who skips."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.digits import CLASSES, PIXELS, DigitsDataset, DigitsMLP
from ddp_workbook.figures.palette import INK
from ddp_workbook.launcher.launch import launch

WIDTH, DEPTH, ROWS = 64, 6, 512  # of the network whose gradients shrink from layer to layer
STEPS, RATE = 80, 0.01
BREAKS = 1e6  # images times this overflow in float16
HOW = {  # what a training computes in, and whether it scales its loss
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
    skipped: list[int]
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
    return dict(zip(HOW, launch(training_of_this_rank, ranks=len(HOW)), strict=True))


def training_of_this_rank() -> Run:
    """A worker: rank r trains alone, in the format of entry r of HOW."""
    return train(*list(HOW.values())[int(os.environ["RANK"])])


def train(
    dtype: torch.dtype, scaled: bool, scale: float = 2.0**16, growth: int = 2000, steps: int = STEPS
) -> Run:
    """`steps` steps with Adam on random digits; scale and growth are torch's own defaults."""
    digits, model = DigitsDataset(), deep_sigmoids()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    scaler = torch.amp.GradScaler("cpu", scale, growth_interval=growth, enabled=scaled)
    losses: list[float] = []
    scales: list[float] = []
    steps_made: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps_made.append(len(losses)))
    zeros = 1.0
    for number in range(steps):
        rows = torch.randperm(len(digits))[:ROWS]
        scales.append(scaler.get_scale())
        batch = digits.images[rows], digits.labels[rows]
        losses.append(step(model, batch, optimizer, scaler, dtype).item())
        if number == 0:
            zeros = (model[0].weight.grad == 0).float().mean().item()
    skipped = sorted(set(range(steps)) - set(steps_made))
    return Run(losses, scales, skipped, zeros)


@figures.drawn
def losses(runs: dict[str, Run]) -> figures.Picture:
    """A line for each training."""
    table = pd.DataFrame({name: run.losses for name, run in runs.items()}).rename_axis("step")
    picture = figures.lines(table, "loss of the batch", "The same training in three formats")
    for name, run in runs.items():
        picture.alt += f" {name}: {run.zeros:.0%} of the first layer's gradient is 0 at the start."
    return picture


@figures.drawn
def scales(run: Run) -> figures.Picture:
    """The scale of each step; a cross marks a step that was skipped."""
    table = pd.DataFrame({"scale": run.scales}).rename_axis("step")
    picture = figures.lines(table, "scale of the loss", "The scale that GradScaler used", log="y")
    crosses = [run.scales[step] for step in run.skipped]
    picture.axes.plot(run.skipped, crosses, "X", color=INK, label="skipped")
    picture.axes.set_yscale("log", base=2)
    picture.explain()
    picture.alt += f" Skipped: steps {', '.join(map(str, run.skipped)) or 'none'}."
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
    device, digits, found = setup(), DigitsDataset(), []
    torch.manual_seed(0)
    ddp = DistributedDataParallel(DigitsMLP().to(device))
    ddp.require_backward_grad_sync = synchronised  # what no_sync sets
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type)
    made: list[int] = []
    optimizer.register_step_post_hook(lambda *_: made.append(1))
    rank, size = dist.get_rank(), dist.get_world_size()
    for number in range(steps):
        mine = slice(64 * number + rank, 64 * (number + 1), size)
        images, labels = digits.images[mine].to(device), digits.labels[mine].to(device)
        before = len(made)
        too_large = BREAKS if (number, rank) == (1, 1) else 1.0
        step(ddp, (images * too_large, labels), optimizer, scaler, torch.float16)
        gradients = torch.cat([one.grad.flatten() for one in ddp.parameters()])
        weights = nn.utils.parameters_to_vector(ddp.parameters()).detach().cpu()
        finite = bool(gradients.isfinite().all())
        found.append(Outcome(finite, len(made) > before, scaler.get_scale(), weights))
    del ddp
    cleanup()
    return found


def outcomes(of_ranks: Sequence[Sequence[Outcome]]) -> pd.DataFrame:
    """A row for each step and rank, and by how much its weights differ from rank 0's afterwards."""
    rows = {
        (number, f"rank {rank}"): {
            "finite .grad": one.finite,
            "step made": one.stepped,
            "scale afterwards": int(one.scale),
            "weights apart": (one.weights - of_ranks[0][number].weights).abs().max().item(),
        }
        for number in range(len(of_ranks[0]))
        for rank, one in enumerate(of_rank[number] for of_rank in of_ranks)
    }
    return pd.DataFrame(rows).T.rename_axis(["step", ""])
