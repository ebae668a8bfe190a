"""Ranks that train by themselves for some steps, and meet only now and then: local SGD, DiLoCo."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.chapters.make_it_fast import flat
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.network.links import network as parse_network

WIDTH, DEPTH = 256, 2  # 0.34 MB of weights
RANKS, ROWS, STEPS = 4, 32, 64  # rows of each rank
RATE, FIRST_LOGGED_STEP = 0.3, 4  # the loss is looked at after 4 steps at the soonest
NETWORK = "100 Mbit/s, 1 ms"
MIXED, SORTED = "all digits on each rank", "each rank its own digits"
SYNC_INTERVALS = (2, 4, 8, 16, 32)
MEAN, NESTEROV = "the mean", "Nesterov 0.9"
OUTER = {MEAN: (1.0, 0.0), NESTEROV: (0.7, 0.9)}  # rate and momentum; DiLoCo's are the second


class OuterOptimizer:
    """The weights that all ranks share, and an optimizer that moves them when the ranks meet."""

    def __init__(self, model: nn.Module, rate: float = 1.0, momentum: float = 0.0) -> None:
        self.own = [*model.parameters()]
        self.shared = [parameter.detach().clone() for parameter in self.own]
        self.optimizer = torch.optim.SGD(self.shared, rate, momentum, nesterov=momentum > 0)

    @torch.no_grad()
    def step(self) -> None:
        """Take the mean of how far the ranks have gone as a gradient; then all go on from there."""
        for shared, own in zip(self.shared, self.own, strict=True):
            shared.grad = (shared - own) / dist.get_world_size()
        flat([shared.grad for shared in self.shared])  # all-reduces them as one vector
        self.optimizer.step()
        for shared, own in zip(self.shared, self.own, strict=True):
            own.copy_(shared)


def own_rows(data: str, digits: DigitsDataset) -> tuple[Tensor, Tensor]:
    """This rank's rows: every N-th, or those of its own digits."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    if data == SORTED:
        order = digits.labels.argsort(stable=True)
        indices = order.chunk(dist.get_world_size())[dist.get_rank()]
        indices = indices[torch.randperm(len(indices), generator=torch.Generator().manual_seed(0))]
        return digits.images[indices], digits.labels[indices]
    return digits.images[mine], digits.labels[mine]


def train(
    every: int,
    data: str = MIXED,
    rate: float = 1.0,
    momentum: float = 0.0,
    *,
    averager: bool = False,
) -> list[tuple[int, float, float]]:
    """A worker: on rank 0 (steps made, seconds, loss on all data) at meetings."""
    device = setup()
    digits = DigitsDataset()
    torch.manual_seed(0)
    model = DigitsMLP(WIDTH, DEPTH).to(device)
    images, labels = (part.to(device) for part in own_rows(data, digits))
    inner = torch.optim.SGD(model.parameters(), lr=RATE)
    outer = OuterOptimizer(model, rate, momentum)
    if averager:  # it counts from 0: without a warm-up, the first meeting is after the first step
        of_torch = PeriodicModelAverager(every, warmup_steps=every - 1)
    seconds, log = 0.0, []
    for number in range(1, STEPS + 1):
        start = time.perf_counter()
        rows = torch.arange(ROWS) + (number - 1) * ROWS
        inner.zero_grad()
        F.cross_entropy(model(images[rows % len(images)]), labels[rows % len(labels)]).backward()
        inner.step()
        if averager:
            of_torch.average_parameters(model.parameters())
        elif number % every == 0:
            outer.step()
        seconds += time.perf_counter() - start
        if dist.get_rank() == 0 and number % max(every, FIRST_LOGGED_STEP) == 0:
            with torch.no_grad():
                loss = F.cross_entropy(model(digits.images.to(device)), digits.labels.to(device))
            log.append((number, seconds, loss.item()))
    return log


def measure(network: str = NETWORK) -> dict[str, pd.DataFrame]:
    """The loss on all data by step, and by second: a column for each distance of the meetings."""
    by_step, by_second = [], []
    for every in (1, 4, 16):
        log = launch(train, every, ranks=RANKS, network=network)[0]
        steps, seconds, losses = zip(*log, strict=True)
        by_step.append(pd.Series(losses, steps, name=interval_label(every)))
        by_second.append(pd.Series(losses, seconds, name=interval_label(every)))
    panels = {"steps": by_step, "seconds": by_second}
    return {name: interpolated_table(columns, name) for name, columns in panels.items()}


def interpolated_table(columns: list[pd.Series], across: str) -> pd.DataFrame:
    """The columns on one index, straight lines between their values."""
    table = pd.concat(columns, axis=1).sort_index().rename_axis(across)
    return table.interpolate("index", limit_area="inside")


def interval_label(every: int) -> str:
    """In words."""
    return "met after every step" if every == 1 else f"every {every} steps"


@figures.house_style
def losses_plot(panels: dict[str, pd.DataFrame], network: str = NETWORK) -> figures.Picture:
    """The same trainings by their steps, and by the clock."""
    tables = {f"by {name}": table for name, table in panels.items()}
    return figures.lines(tables, "loss on all data", f"{RANKS} ranks on {network}", log="y")


def play_local_sgd() -> ddp_workbook.Play:
    """A training that meets now and then, beside the one that meets after every step."""
    return ddp_workbook.play(
        train_both_ways,
        both_plot,
        ranks=None,
        stills=[
            {"every": 2},
            {"outer": NESTEROV},
            {"data": MIXED},
            {"data": MIXED, "outer": NESTEROV},
        ],
        every=ddp_workbook.slider("steps between meetings", SYNC_INTERVALS, 16),
        data=ddp_workbook.slider("data", (MIXED, SORTED), SORTED),
        outer=ddp_workbook.slider("outer step", OUTER, MEAN),
    )


def train_both_ways(every: int, data: str, outer: str) -> pd.DataFrame:
    """The loss by step of both, without a network: it would change the seconds alone."""
    ways = {interval_label(1): (1, data), interval_label(every): (every, data, *OUTER[outer])}
    columns = []
    for name, way in ways.items():
        log = launch(train, *way, ranks=RANKS)[0]
        columns.append(pd.Series({step: loss for step, _, loss in log}, name=name))
    return interpolated_table(columns, "steps")


@figures.house_style
def both_plot(
    table: pd.DataFrame, every: int, data: str, *_: object, **__: object
) -> figures.Picture:
    """The two losses, and what each training has on the wire."""
    sync_s = sync_seconds()
    about = (
        f"{data.capitalize()}; on the wire {STEPS * sync_s:.1f} and {STEPS // every * sync_s:.1f} s"
    )
    picture = figures.lines(table, "loss on all data", about, log="y")
    picture.axes.set_title(f"{about} at {NETWORK.partition(',')[0]}", loc="left")
    return picture


def sync_seconds(network: str = NETWORK) -> float:
    """Seconds that one meeting takes on the network."""
    size = sum(parameter.nbytes for parameter in DigitsMLP(WIDTH, DEPTH).parameters())
    return parse_network(network).seconds("all_reduce", size, [*range(RANKS)], RANKS)


def compare_with_pytorch(every: int = 16) -> pd.DataFrame:
    """The loss at each meeting: with `OuterOptimizer`, and with torch's own averager."""
    ways: dict[str, Any] = {"Outer": {}, "PeriodicModelAverager": {"averager": True}}
    columns = {
        name: {step: loss for step, _, loss in launch(train, every, **way, ranks=RANKS)[0]}
        for name, way in ways.items()
    }
    return pd.DataFrame(columns).rename_axis("steps").round(4)
