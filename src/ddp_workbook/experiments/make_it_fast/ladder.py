"""The rungs of the ladder, timed side by side on a network that the reader orders."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.chapters.make_it_fast import RUNGS, Step, after_backward, ddp
from ddp_workbook.experiments.collectives.message_times import time_steps
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.network.links import network as parse_network

WIDTH, DEPTH = 512, 8  # 18 tensors, 7.5 MB of gradients
ROWS = 512  # of each rank
RANKS, ROUNDS = 2, 4
NETWORK = "1 Gbit/s, 0.5 ms"
ALONE = "no communication"
# What the page calls a rung: its name in the chapter, and how many times ROWS its batch has.
NAMES = {
    "one all-reduce a parameter": ("one_by_one", 1),
    "one flat vector": ("flat", 1),
    "buckets after backward": ("buckets", 1),
    "DDP, all in one bucket": ("one_bucket", 1),
    "DDP, buckets of 1 MiB": ("ddp", 1),
    "DDP, views, static graph": ("views", 1),
    "DDP, float16 on the wire": ("half_the_bytes", 1),
    "DDP, twice the rows": ("ddp", 2),
    "DDP, accumulated twice": ("accumulated", 2),
}
Way = Callable[[nn.Module], Step]
silent: Way = partial(after_backward, lambda gradients: None)
WAYS: dict[str, Way] = RUNGS | {"one_bucket": partial(ddp, bucket_cap_mb=1000)}


def measure(network: str | None = NETWORK, rounds: int = ROUNDS) -> pd.DataFrame:
    """Milliseconds for ROWS rows a rank: compute, and exposed; a row a rung, the first without any.

    Those of the fastest round, in which a step takes as long as on its slower rank.
    """
    of_ranks = launch(seconds_of, [*NAMES], rounds, ranks=RANKS, network=network, timeout=300)
    return table_of(of_ranks)


def seconds_of(names: list[str], rounds: int) -> dict[str, list[float]]:
    """In a rank: for each rung, and for no communication, the seconds of each round."""
    step_of = steps_on_digits(WIDTH, DEPTH)
    steps = {ALONE: step_of(silent, ROWS)}
    for name in names:
        way, times = NAMES[name]
        steps[name] = step_of(WAYS[way], times * ROWS)
    multiples = {ALONE: 1} | {name: NAMES[name][1] for name in names}
    times_by_rung = time_steps(steps, rounds)
    return {
        name: [seconds / multiples[name] for seconds in times]
        for name, times in times_by_rung.items()
    }


def steps_on_digits(width: int, depth: int) -> Callable[[Way, int], Callable[[], object]]:
    """In a rank: makes the step of a way, on so many rows of each rank, from the same weights."""
    device = setup()
    torch.manual_seed(0)
    model, digits = DigitsMLP(width, depth).to(device), DigitsDataset()

    def step_of(way: Way, rows: int) -> Callable[[], object]:
        images, labels = digits.images[:rows].to(device), digits.labels[:rows].to(device)
        step = way(copy.deepcopy(model))
        return partial(step, images, labels, dist.get_world_size() * rows)

    return step_of


def table_of(of_ranks: list[dict[str, list[float]]], alone: str = ALONE) -> pd.DataFrame:
    """Compute and exposed in milliseconds, a row a way; `alone` is the one that sends nothing.

    Of each way the fastest round, in which it takes as long as on its slowest rank.
    """
    fastest = {
        name: 1e3 * min(map(max, zip(*(times[name] for times in of_ranks), strict=True)))
        for name in of_ranks[0]
    }
    compute = pd.Series(fastest).clip(upper=fastest[alone])
    return pd.DataFrame({"compute": compute, "exposed": pd.Series(fastest) - compute})


@figures.house_style
def rungs_plot(
    table: pd.DataFrame, network: str | None = NETWORK, *, rows: int = ROWS, **_: object
) -> figures.Picture:
    """A bar a rung, or another way to do a step: what computes, and what comes beyond it."""
    about = f"A step of {rows} rows a rank, {network or 'within this machine'}"
    picture = figures.bars(table, "milliseconds", about, totals=lambda end: f"{end:.0f}")
    picture.figure.axes[0].set_title(about, loc="left")
    return picture


def up_to(table: pd.DataFrame, name: str) -> figures.Picture:
    """The bars from the first rung to this one."""
    return rungs_plot(table.loc[:name])


def all_reduce_ms(network: str = NETWORK) -> float:
    """Milliseconds that one all-reduce of all gradients takes on this network."""
    size = sum(parameter.nbytes for parameter in DigitsMLP(WIDTH, DEPTH).parameters())
    return 1e3 * parse_network(network).seconds("all_reduce", size, [*range(RANKS)], RANKS)


def play_ladder() -> ddp_workbook.Play:
    """One rung beside no communication, on a network."""
    links = ("100 Mbit/s, 0.5 ms", "300 Mbit/s, 0.5 ms", NETWORK, "1 Gbit/s, 5 ms", "Ethernet 10G")
    return ddp_workbook.play(
        time_rung,
        lambda of_ranks, **controls: rungs_plot(table_of(of_ranks), controls["network"]),
        ranks=RANKS,
        stills=[
            {"rung": "one all-reduce a parameter"},
            {"rung": "one all-reduce a parameter", "network": "1 Gbit/s, 5 ms"},
            {"rung": "DDP, float16 on the wire", "network": "100 Mbit/s, 0.5 ms"},
            {"network": "Ethernet 10G"},
        ],
        rung=ddp_workbook.slider("rung", NAMES, "DDP, buckets of 1 MiB"),
        network=ddp_workbook.slider("network", links, NETWORK),
    )


def time_rung(rung: str) -> dict[str, list[float]]:
    """A worker: the seconds of this rung, and of no communication."""
    return seconds_of([rung], 3)
