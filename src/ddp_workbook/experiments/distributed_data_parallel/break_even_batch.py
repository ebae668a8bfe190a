"""The numbers that decide whether DDP pays: compute, gradients, bandwidth; and the real step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import forward_and_backward, setup
from ddp_workbook.experiments.data_parallel.step_times import in_fresh_processes
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint
from manyranks.planning.hardware import GB, INTER_NODE_LINKS, INTRA_NODE_LINKS
from manyranks.planning.scaling import FORWARD
from manyranks.recording.timing import time_step

PUBLISHED_FILE = Path(__file__).parents[4] / "data" / "published_ddp.csv"
WIDTH, DEPTH, REPEATS = 512, 4, 5
ROWS = (32, 128, 512, 2048)  # of the global batch
OVERLAP_SHARES = {
    "nothing hidden": 0.0,
    "hidden by backward": 1 - FORWARD,
}  # shares of a rank's compute


class StepCosts(NamedTuple):
    """What a step is made of, for one global batch; milliseconds and MB."""

    ranks: int
    rows: int
    compute: float  # forward and backward of all rows in one process with one thread
    update: float  # the optimizer's step
    gradients: float
    all_reduce: float  # of all gradients at once, with nothing else to do
    step: float  # DDP: forward, backward and the optimizer's step

    @property
    def bandwidth(self) -> float:
        """MB a millisecond (GB a second) that each rank sends, if the all-reduce is a ring."""
        return 2 * (self.ranks - 1) / self.ranks * self.gradients / self.all_reduce


def measure_step_costs(rows: Sequence[int] = ROWS, ranks: int = 2) -> list[StepCosts]:
    """The numbers for each size of batch, measured in one launch with one thread a rank."""
    of_ranks = in_fresh_processes(numbers_of_this_rank, rows, ranks=ranks, threads=1)
    # A step takes as long as on its slowest rank; compute is what rank 0 needs for all rows.
    return [
        StepCosts(*of_rows[0][:-2], *map(max, *(costs[-2:] for costs in of_rows)))
        for of_rows in zip(*of_ranks, strict=True)
    ]


def numbers_of_this_rank(rows: Sequence[int]) -> list[StepCosts]:
    """The same on one rank; while rank 0 computes alone, the others wait."""
    device, digits, costs = setup(), DigitsDataset(), []
    torch.manual_seed(0)
    model = DigitsMLP(WIDTH, DEPTH).to(device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    flat = torch.zeros(sum(p.numel() for p in model.parameters()), device=device)
    all_reduce = _milliseconds(lambda: dist.all_reduce(flat), device)
    rank, size = dist.get_rank(), dist.get_world_size()
    for count in rows:
        indices = torch.arange(count) % len(digits)  # a batch may be larger than the data set
        images, labels = digits.images[indices].to(device), digits.labels[indices].to(device)

        def step(images=images[rank::size], labels=labels[rank::size], count=count) -> None:
            forward_and_backward(ddp, images, labels, count)
            optimizer.step()

        def alone(images=images, labels=labels, count=count) -> None:
            forward_and_backward(model, images, labels, count)

        compute = _milliseconds(alone, device) if rank == 0 else 0.0
        update = _milliseconds(optimizer.step, device)
        dist.barrier()
        together = _milliseconds(step, device)
        costs.append(
            StepCosts(size, count, compute, update, flat.nbytes / 1e6, all_reduce, together)
        )
    dist.barrier()
    return costs


def _milliseconds(work: Callable[[], object], device: torch.device) -> float:
    return 1e3 * median(time_step(work, warm_up=2, repeats=REPEATS, device=device))


def table(costs: Sequence[StepCosts]) -> pd.DataFrame:
    """A row for each size of batch, in ms, MB and MB a ms: what the formula needs."""
    rows = {
        cost.rows: {
            "compute C, ms": cost.compute,
            "update, ms": cost.update,
            "gradients S, MB": cost.gradients,
            "bandwidth B, GB/s": cost.bandwidth,
            "2 S / B, ms": 2 * cost.gradients / cost.bandwidth,
        }
        for cost in costs
    }
    return pd.DataFrame(rows).T.rename_axis("rows")


def against_formula(costs: Sequence[StepCosts]) -> pd.DataFrame:
    """Milliseconds of a step for each number of rows: measured, and between which by the formula.

    Backward, two thirds of the compute, can hide an all-reduce; the rest comes on top.
    """
    rows = {}
    for cost in costs:
        rows[cost.rows] = {"one process": cost.compute + cost.update, "DDP": cost.step}
        terms = cost.compute, cost.gradients, cost.bandwidth, cost.ranks
        for name, hidden in OVERLAP_SHARES.items():
            rows[cost.rows][name] = milliseconds(*terms, hidden) + cost.update
    return pd.DataFrame(rows).T.rename_axis("rows")


def break_even_rows(costs: Sequence[StepCosts]) -> float:
    """Rows at which C = 2 S / B, between the measured ones; nan if it is outside of them."""
    rows = [cost.rows for cost in costs]
    compute = [cost.compute for cost in costs]
    all_reduce_ms = 2 * costs[0].gradients / costs[0].bandwidth
    return float(np.interp(all_reduce_ms, compute, rows, left=np.nan, right=np.nan))


@figures.house_style
def break_even(steps: pd.DataFrame, even: float) -> figures.Picture:
    """Milliseconds of a step against the rows of the batch, and where DDP begins to pay.

    `steps` is what `against_formula` returns, `even` is from `break_even_rows`.
    """
    measurements = (
        steps[["one process", "DDP"]]
        .add_suffix(", measured")
        .rename_axis("rows of the global batch")
    )
    picture = figures.lines(measurements, "ms a step", "A step of one process and of DDP", log="xy")
    axes, rows = picture.axes, steps.index
    band = steps["hidden by backward"], steps["nothing hidden"]
    axes.fill_between(rows, *band, color=tint(series_colour(2), 0.4), label="DDP, by formula")
    picture.update_legend()
    words = [
        f"{row} rows: one process {step['one process']:.1f}, DDP {step['DDP']:.1f}, by formula "
        f"{step['hidden by backward']:.1f} to {step['nothing hidden']:.1f}"
        for row, step in steps.iterrows()
    ]
    picture.alt += f" {'; '.join(words)}."
    if rows.min() <= even <= rows.max():  # nan is not
        axes.axvline(even, color=INK, linestyle="--", linewidth=1)
        axes.text(even, measurements.min().min(), " C = 2 S / B", va="bottom", size=9)
        picture.alt += f" The formula's break-even is at {even:.0f} rows."
    return picture


def published_speeds() -> pd.DataFrame:
    """Samples a second that others measured with DDP on GPUs; data/README.md names the sources.

    `scaling` is the speed-up over one GPU divided by the GPUs: 1 is perfect.
    """
    table = pd.read_csv(PUBLISHED_FILE)
    scaling = table["all GPUs"] / table["one GPU"] / table["count"]
    gpus = table["count"].astype(str) + " " + table["GPU"]
    columns = table[["model", "link", "precision", "one GPU", "all GPUs"]].assign(scaling=scaling)
    words = {"one GPU": "{:,g}", "all GPUs": "{:,g}", "scaling": "{:.2f}"}
    for column, form in words.items():
        columns[column] = columns[column].map(form.format).replace("nan", "not given")
    columns.insert(1, "GPUs", gpus)
    return columns.assign(source=table["source"])


# The calculator

SLOWEST_FIRST = sorted(
    (*INTER_NODE_LINKS, *INTRA_NODE_LINKS), key=lambda link: link.bytes_per_second
)
LINKS = {link.name: link.bytes_per_second / GB for link in SLOWEST_FIRST}  # MB a ms, or GB a s
RANKS = [2**power for power in range(11)]


def play_calculator() -> ddp_workbook.Play:
    """The formula for a training of one's own."""
    return ddp_workbook.play(
        speed_ups,
        speed_ups_plot,
        ranks=None,
        stills=[
            {"link": "Ethernet 100G"},
            {"link": "NVLink 4"},
            {"compute": 400},
            {"bits": 16},
            {"millions": 7000},
        ],
        compute=ddp_workbook.slider("compute C, ms", (10, 25, 50, 100, 200, 400, 1000), 100),
        millions=ddp_workbook.slider("parameters, millions", (1, 25.6, 100, 340, 1000, 7000), 25.6),
        bits=ddp_workbook.slider("bits a gradient", (16, 32), 32),
        link=ddp_workbook.slider("link B", LINKS, "Ethernet 10G"),
    )


def milliseconds(
    compute: float, gradients: float, bandwidth: float, ranks: int, hidden: float = 0.0
) -> float:
    """A step on `ranks` ranks, in ms.

    `compute` is that of one process, in ms; `gradients` are in MB, `bandwidth` in MB a ms (= GB a
    s). `hidden` is the share of a rank's compute that hides communication.
    """
    share = compute / ranks
    all_reduce = 2 * (ranks - 1) / ranks * gradients / bandwidth
    return share + max(0.0, all_reduce - hidden * share)


def speed_ups(compute: float, millions: float, bits: int, link: str) -> pd.DataFrame:
    """How many times as fast as one process N ranks are: a row a number of ranks."""
    gradients = millions * bits / 8
    return pd.DataFrame(
        {
            name: [
                compute / milliseconds(compute, gradients, LINKS[link], ranks, hidden)
                for ranks in RANKS
            ]
            for name, hidden in OVERLAP_SHARES.items()
        },
        index=pd.Index(RANKS, name="ranks"),
    )


@figures.house_style
def speed_ups_plot(
    table: pd.DataFrame, compute: float, millions: float, bits: int, link: str
) -> figures.Picture:
    """Times as fast as one process against the ranks, and on which side of the rule it is."""
    all_reduce_ms = 2 * millions * bits / 8 / LINKS[link]
    pays = "DDP pays" if compute > all_reduce_ms else "without overlap DDP does not pay"
    words = f"C is {compute:g} ms, 2 S / B is {figures.number(all_reduce_ms)} ms: {pays}"
    picture = figures.lines(table, "times as fast as one process", "N ranks", log="xy")
    axes = picture.axes
    axes.axhline(1, color=INK, linewidth=1.2)
    axes.set_ylim(min(0.5, table.min(axis=None) / 1.2), max(2, table.max(axis=None) * 1.2))
    axes.set_title(words)
    picture.alt += f" {words}."
    return picture
