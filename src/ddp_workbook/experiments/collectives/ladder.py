"""Four ways to add up one model's gradients, timed: what each rung of the ladder saves.

The model has many small parameters, as real ones have: 2 tensors a layer. The ways are those that
DDP's authors describe (Li et al., 2020): a message per parameter, one message of all gradients,
buckets, and buckets that are sent while backward still computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.make_it_fast import flat, in_buckets, one_by_one
from ddp_workbook.experiments.collectives.message_times import time_steps
from ddp_workbook.experiments.collectives.overlap import NETWORK
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.launcher.launch import launch
from manyranks.launcher.process_group import set_up

WIDTH, DEPTH, ROWS = 192, 32, 256
LOCAL_NETWORK, PRETEND = "this machine's memory", "a pretend network, 1 Gbit/s"
RUNGS = (
    "no communication",
    "one per parameter tensor",
    "one flat vector",
    "buckets, after backward",
    "buckets, during backward (DDP)",
)
NOISE_WARNING = (
    "A bar ends left of the dashed line: noise is larger than the cost of communication."
)


def time_ladder(rounds: int = 7) -> pd.DataFrame:
    """A table of network, rung, round and seconds, those of the slower of two ranks."""
    rows = []
    for name, network in ((LOCAL_NETWORK, None), (PRETEND, NETWORK)):
        # 300 s: 45 passes take seconds on a quiet machine, and a minute on a crowded one
        of_ranks = launch(seconds_of_rungs, rounds, ranks=2, timeout=300, network=network)
        rows += [
            (name, rung, number, max(both))
            for rung in RUNGS
            for number, both in enumerate(
                zip(*(seconds[rung] for seconds in of_ranks), strict=True), 1
            )
        ]
    return pd.DataFrame(rows, columns=["network", "rung", "round", "seconds"])


def seconds_of_rungs(rounds: int) -> dict[str, list[float]]:
    """In a rank: by rung, the seconds of a forward and backward pass in each round."""
    device = set_up(bare=False)
    torch.manual_seed(0)
    layers = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model, rows = nn.Sequential(*layers).to(device), torch.randn(ROWS, WIDTH, device=device)
    ddp = DistributedDataParallel(model, bucket_cap_mb=1)

    def by_hand(way: Callable | None) -> None:
        model.zero_grad()
        with ddp.no_sync():
            model(rows).sum().backward()
        if way:
            way([parameter.grad for parameter in reversed(list(model.parameters()))])

    def by_ddp() -> None:
        model.zero_grad()
        ddp(rows).sum().backward()

    ways = [partial(by_hand, way) for way in (None, one_by_one, flat, in_buckets)]
    return time_steps(dict(zip(RUNGS, [*ways, by_ddp], strict=True)), rounds)


@figures.house_style
def ladder_plot(times: pd.DataFrame) -> figures.Picture:
    """A panel a network, a bar a rung: its fastest round, with a line to the median of the rounds.

    `times` has the columns network, rung, round and seconds. The first rung communicates nothing,
    and a dashed line marks where it ends: what is right of the line is the cost of communication.
    If a bar ends left of the line, a sentence above the panels says why.
    """
    networks = dict(list(times.groupby("network", sort=False)))
    of_rungs = {
        network: part.groupby("rung", sort=False)["seconds"].agg(["min", "median"]) * 1e3
        for network, part in networks.items()
    }
    fastest = {network: part[["min"]] for network, part in of_rungs.items()}
    about = "Forward, backward and communication, in the fastest round"
    picture = figures.bars(fastest, "milliseconds", about, by="candidate")
    for axes, part in zip(picture.figure.axes, of_rungs.values(), strict=True):
        for row, rung in enumerate(part.itertuples()):
            axes.plot([rung.min, rung.median], [row, row], color=INK, linewidth=1.2)
            axes.text(rung.median, row, f"  {rung.min:.0f}", va="center", size=10)
        for bar in axes.patches:
            bar.set_alpha(0.6)  # the lines are seen through it
        axes.grid(visible=False)
        axes.axvline(part["min"].iloc[0], color=INK, linestyle="dashed", linewidth=1.2)
        axes.set_xlim(0, 1.18 * part["median"].max())
    if any((part["min"] < part["min"].iloc[0]).any() for part in of_rungs.values()):
        picture.figure.suptitle(NOISE_WARNING, x=0.01, ha="left", size=10)
        picture.alt += f" {NOISE_WARNING}"
    return picture
