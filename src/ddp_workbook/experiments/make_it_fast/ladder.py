"""The rungs of the ladder, timed side by side on a network that the reader orders."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.chapters.make_it_fast import RUNGS, Step, after_backward, ddp
from ddp_workbook.experiments.collectives.message_times import time_steps
from ddp_workbook.experiments.make_it_fast import quiet_machine
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.network.links import network as parse_network

WIDTH, DEPTH = 512, 8  # 18 tensors, 7.5 MB of gradients
ROWS = 512  # samples of each rank
RANKS, ROUNDS = 2, 4
NETWORK = "1 Gbit/s, 0.5 ms"
ALONE = "no communication"
EACH, FLAT = "one all-reduce a parameter", "one flat vector"
AFTER_BACKWARD = (EACH, FLAT, "buckets after backward")
WHOLE, SMALL, LAST = "DDP, all in one bucket", "DDP, buckets of 1 MiB", "DDP, accumulated twice"
SLACK, MOST_OF_WIRE = 0.93, 1.5  # shares of a time that can still be true
# What the page calls a rung: its name in the chapter, and how many times ROWS its batch has.
NAMES = {
    "one all-reduce a parameter": ("one_by_one", 1),
    "one flat vector": ("flat", 1),
    "buckets after backward": ("buckets", 1),
    "DDP, all in one bucket": ("one_bucket", 1),
    "DDP, buckets of 1 MiB": ("ddp", 1),
    "DDP, views, static graph": ("views", 1),
    "DDP, float16 on the wire": ("half_the_bytes", 1),
    "DDP, twice the samples": ("ddp", 2),
    "DDP, accumulated twice": ("accumulated", 2),
}
Way = Callable[[nn.Module], Step]
silent: Way = partial(after_backward, lambda gradients: None)
WAYS: dict[str, Way] = RUNGS | {"one_bucket": partial(ddp, bucket_cap_mb=1000)}


def measure(network: str | None = NETWORK, rounds: int = ROUNDS) -> pd.DataFrame:
    """Milliseconds for ROWS rows a rank: compute, and exposed; a row a rung, the first without any.

    Those of the fastest round, in which a step takes as long as on its slower rank. If they cannot
    be true, those of an idle machine, with `attrs["note"]`.
    """
    of_ranks = launch(seconds_of, [*NAMES], rounds, ranks=RANKS, network=network, timeout=300)
    table = table_of(of_ranks)
    return recorded_table() if network == NETWORK and is_impossible(table, network) else table


def is_impossible(table: pd.DataFrame, network: str = NETWORK) -> bool:
    """Whether the machine did something else meanwhile: then some times contradict the network.

    No step is shorter than its computing. After backward, all bytes are exposed; and gloo adds
    little to what the wire takes.
    """
    wire = all_reduce_ms(network)
    after_backward_ms = table["exposed"][list(AFTER_BACKWARD)]
    shorter = (table["compute"] < SLACK * table["compute"][ALONE]).any()
    faster_than_wire = (after_backward_ms < SLACK * wire).any()
    return bool(shorter or faster_than_wire or after_backward_ms.min() > MOST_OF_WIRE * wire)


def recorded_table() -> pd.DataFrame:
    """The ladder of an idle machine."""
    ladder = quiet_machine.recorded()["ladder"]
    table = pd.DataFrame({part: ladder[part] for part in ("compute", "exposed")})
    table.attrs["note"] = quiet_machine.note()
    return table


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
    about = f"A step of {rows} samples a rank, {network or 'within this machine'}"
    unit = f"milliseconds for {rows} samples a rank, {network or 'within this machine'}"
    picture = figures.bars(table, unit, about, totals=lambda end: f"{end:.0f}")
    sentence = headline(table)
    picture.figure.axes[0].set_title(sentence or about, loc="left")
    picture.alt += f" {sentence}." if sentence else ""
    if note := table.attrs.get("note"):
        picture.figure.supxlabel(note, x=0.01, ha="left", fontsize=9)
        picture.alt += f" {note}"
    return picture


def headline(table: pd.DataFrame) -> str:
    """What these bars say, in numbers of their own; "" for bars that are no ladder."""
    exposed = table.get("exposed", pd.Series(dtype=float))
    there = {*exposed.index}
    if {ALONE, LAST} <= there:
        least = exposed.drop(ALONE).idxmin()
        return f"Least is exposed with {least}: {exposed[least]:.0f} ms"
    if {WHOLE, SMALL} <= there:
        return (
            f"Exposed: {exposed[WHOLE]:.0f} ms in one bucket, {exposed[SMALL]:.0f} ms in buckets "
            "of 1 MiB"
        )
    if {EACH, FLAT} <= there:
        sooner = exposed[EACH] - exposed[FLAT]
        return f"One call ends {abs(sooner):.0f} ms {'sooner' if sooner > 0 else 'later'} than 18"
    return ""


def up_to(table: pd.DataFrame, name: str) -> figures.Picture:
    """The bars from the first rung to this one."""
    return rungs_plot(table.loc[:name])


def all_reduce_ms(network: str = NETWORK) -> float:
    """Milliseconds that one all-reduce of all gradients takes on this network."""
    size = sum(parameter.nbytes for parameter in DigitsMLP(WIDTH, DEPTH).parameters())
    return 1e3 * parse_network(network).seconds("all_reduce", size, [*range(RANKS)], RANKS)
