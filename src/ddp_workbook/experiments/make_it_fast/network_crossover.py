"""One batch on networks from slow to fast: when two ranks pay, and with which strategy.

DDP is run. FSDP is computed from DDP's own run, because gloo's FSDP is slow for reasons of its own:
its reduce-scatter is an all-reduce for each rank (torch 2.13).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.chapters.make_it_fast import ddp, ddp_float16
from ddp_workbook.experiments.collectives.message_times import time_steps
from ddp_workbook.experiments.make_it_fast.ladder import (
    RANKS,
    silent,
    steps_on_digits,
    table_of,
)
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.network.links import Network, network
from manyranks.planning.hardware import GBIT

WIDTH, DEPTH = 192, 8
CAP = 0.03  # MiB: every layer but the output has a bucket of its own
BACKWARD_SHARE = 2 / 3  # of the computing: two matrix products a layer, where forward has one
ROUNDS, LATENCY = 3, 1e-4
SPEEDS = (0.1, 0.3, 1, 3, 10, 100, 3600)  # Gbit/s; the last is NVLink 4 (450 GB/s)
ONE_PROCESS, ALONE = "one process", "two ranks, no network"
DDP, HALF = "DDP", "DDP, float16"
FSDP, FSDP_PREFETCH = "FSDP, one after the other", "FSDP, prefetched"


def play_network() -> ddp_workbook.Play:
    """Sliders for the speed of the network, and the rows of each rank."""
    return ddp_workbook.play(
        measure_steps,
        steps_plot,
        ranks=RANKS,
        stills=[
            {"network": network_spec(0.1)},
            {"network": network_spec(0.1), "rows": 800},
            {"network": network_spec(3600)},
        ],
        network=ddp_workbook.slider("network", map(network_spec, SPEEDS), network_spec(1)),
        rows=ddp_workbook.slider("rows of each rank", (100, 200, 400, 800), 400),
    )


def network_spec(gigabits: float) -> str:
    """A network of this speed in the words of an order."""
    return f"{gigabits:g} Gbit/s, {1e3 * LATENCY:g} ms"


def measure_steps(rows: int) -> dict[str, list[float]]:
    """A worker: seconds of the whole batch in one process, and of each rank's rows of it."""
    step_of = steps_on_digits(WIDTH, DEPTH)
    steps = {ONE_PROCESS: step_of(silent, RANKS * rows), ALONE: step_of(silent, rows)}
    for name, way in {DDP: ddp, HALF: ddp_float16}.items():
        steps[name] = step_of(partial(way, bucket_cap_mb=CAP), rows)
    return time_steps(steps, ROUNDS)


def layers() -> list[int]:
    """The bytes of each layer, in the order of forward."""
    model = DigitsMLP(WIDTH, DEPTH)
    return [
        4 * (layer.weight.numel() + layer.bias.numel()) for layer in (*model.hidden, model.output)
    ]


def seconds(op: str, size: float, link: Network) -> float:
    """Seconds of one call on all ranks."""
    return link.seconds(op, int(size), [*range(RANKS)], RANKS)


def ddp_step(compute: float, link: Network, compression: float = 1) -> float:
    """Seconds of a step in which a layer's all-reduce begins when its gradient is there."""
    sizes = layers()
    now, network_free = compute * (1 - BACKWARD_SHARE), 0.0
    for size in reversed(sizes):
        now += compute * BACKWARD_SHARE * size / sum(sizes)
        network_free = max(network_free, now) + seconds("all_reduce", size * compression, link)
    return max(now, network_free)


def fsdp_step(compute: float, link: Network, *, prefetch: bool) -> float:
    """Seconds of a step that gathers each layer in forward and in backward, and scatters once.

    With `prefetch` a layer is on its way while the one before it computes.
    """
    sizes = layers()
    visits = [(size, False) for size in sizes] + [(size, True) for size in reversed(sizes)]
    now, port = 0.0, 0.0
    arrivals = [port := port + seconds("all_gather", sizes[0], link)]
    for place, (size, backward) in enumerate(visits):
        start = max(now, arrivals[place])
        now = start + compute * (BACKWARD_SHARE if backward else 1 - BACKWARD_SHARE) * size / sum(
            sizes
        )
        following = [
            seconds("all_gather", nbytes, link) for nbytes, _ in visits[place + 1 : place + 2]
        ]
        if prefetch:
            arrivals += [port := max(port, start) + gather for gather in following]
        if backward:
            port = max(port, now) + seconds("reduce_scatter", size, link)
        if not prefetch:
            arrivals += [port := max(port, now) + gather for gather in following]
    return max(now, port)


def computed_steps(compute: float) -> pd.DataFrame:
    """Milliseconds by Gbit/s of each strategy, for the seconds that a rank computes."""
    rows = {}
    for gigabits in np.geomspace(SPEEDS[0], SPEEDS[-1], 40):
        link = network(Network(gigabits * GBIT, LATENCY))
        rows[gigabits] = {
            DDP: ddp_step(compute, link),
            HALF: ddp_step(compute, link, 1 / 2),
            FSDP: fsdp_step(compute, link, prefetch=False),
            FSDP_PREFETCH: fsdp_step(compute, link, prefetch=True),
        }
    table = 1e3 * pd.DataFrame(rows).T
    return table.rename_axis("Gbit/s in each direction")


@figures.house_style
def steps_plot(of_ranks: list[dict], network: str, rows: int, **_: object) -> figures.Picture:
    """A computed line a strategy, dashed what one process takes, and circles where DDP was run."""
    times = table_of(of_ranks, ALONE).sum(axis=1)
    about = f"A batch of {RANKS * rows} rows on {RANKS} ranks; the circles were run"
    picture = figures.lines(computed_steps(times[ALONE] / 1e3), "milliseconds", about, log="xy")
    axes, speed = picture.axes, float(network.partition(" ")[0])
    axes.axhline(times[ONE_PROCESS], color=INK, linestyle="dashed", linewidth=1.2)
    axes.text(SPEEDS[-1], times[ONE_PROCESS], ONE_PROCESS, ha="right", va="bottom", size=9)
    axes.plot([speed, speed], [times[DDP], times[HALF]], "o", mfc="none", color=INK, ms=9)
    axes.set_title(about, loc="left")
    picture.alt += (
        f" Run at {network}: one process {times[ONE_PROCESS]:.0f} ms, {DDP} {times[DDP]:.0f} ms, "
        f"{HALF} {times[HALF]:.0f} ms."
    )
    return picture
