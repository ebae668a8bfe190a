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
from ddp_workbook.experiments.make_it_fast import quiet_machine
from ddp_workbook.experiments.make_it_fast.ladder import (
    RANKS,
    silent,
    steps_on_digits,
    table_of,
)
from manyranks import figures
from manyranks.figures.palette import INK, series_colour
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
TICKS = (
    *("100\nMbit/s", "300\nMbit/s", "1\nGbit/s", "3\nGbit/s", "10\nGbit/s", "100\nGbit/s"),
    "NVLink 4",
)
MIDDLE, MOST_OVERHEAD_MS = 20, 40  # Gbit/s; the cores' own work for DDP and gloo
LOOKS: dict[str, dict] = {
    DDP: {"color": series_colour(5), "linewidth": 2.6},
    HALF: {"color": series_colour(4), "linewidth": 2.6},
    FSDP: {"color": series_colour(3), "linewidth": 1.4},
    FSDP_PREFETCH: {"color": series_colour(2), "linewidth": 1.4},
}


def play_network() -> ddp_workbook.Play:
    """Sliders for the speed of the network, and the samples of each rank."""
    return ddp_workbook.play(
        measure_steps,
        steps_plot,
        ranks=RANKS,
        stills=[
            {"network": network_spec(1)},
            {"network": network_spec(0.1), "rows": 800},
            {"network": network_spec(3600)},
        ],
        network=ddp_workbook.slider("network", map(network_spec, SPEEDS), network_spec(0.1)),
        rows=ddp_workbook.slider("samples of each rank", (100, 200, 400, 800), 400),
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
    note = ""
    if is_impossible(times, network):
        run = quiet_machine.recorded()["network"]
        times, network, rows = pd.Series(run["step"]), run["network"], run["rows"]
        note = quiet_machine.note()
    table, speed = computed_steps(times[ALONE] / 1e3), float(network.partition(" ")[0])
    figure = figures.Figure((figures.WIDTH, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")  # else the slow end hides where the lines cross
    for name, look in LOOKS.items():
        axes.plot(table.index, table[name], label=f"{name}, computed", **look)
    axes.axhline(times[ONE_PROCESS], color=INK, linestyle="dashed", linewidth=1.2)
    axes.text(SPEEDS[-1], times[ONE_PROCESS] * 1.04, ONE_PROCESS, ha="right", va="bottom", size=9.5)
    for name in (DDP, HALF):
        axes.plot(speed, times[name], "o", mfc="white", mec=LOOKS[name]["color"], mew=2, ms=9)
        axes.annotate(
            f"{name}, run: {times[name]:.0f} ms",
            (speed, times[name]),
            (10, 8),
            textcoords="offset points",
            size=9.5,
            weight="bold",
            ha="right" if speed > MIDDLE else "left",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.9},
        )
    axes.set_xticks(SPEEDS, TICKS)
    lowest, highest = axes.get_ylim()
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if lowest <= t <= highest]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("speed of the network, in each direction")
    axes.set_ylabel(f"milliseconds for {RANKS * rows} samples")
    axes.grid(axis="y")
    axes.legend(loc="upper right")
    sentence = verdict(times, network)
    axes.set_title(sentence, loc="left")
    if note:
        figure.supxlabel(note, x=0.01, ha="left", fontsize=9)
    ends = ", ".join(
        f"{name} from {table[name].iloc[0]:.0f} to {table[name].iloc[-1]:.0f}" for name in table
    )
    return figures.Picture(
        figure,
        f"A batch of {RANKS * rows} samples on {RANKS} ranks, milliseconds by the speed of the "
        f"network, computed: {ends}. Run at {network}: one process {times[ONE_PROCESS]:.0f} ms, "
        f"{DDP} {times[DDP]:.0f} ms, {HALF} {times[HALF]:.0f} ms. {sentence}. {note}",
    )


def verdict(times: pd.Series, network: str) -> str:
    """Whether the second rank pays, by what was run."""
    ratio = times[DDP] / times[ONE_PROCESS]
    how = f"{ratio:.1f} times as slow as" if ratio > 1 else f"{1 / ratio:.1f} times as fast as"
    speed = TICKS[SPEEDS.index(float(network.partition(" ")[0]))].replace("\n", " ")
    return f"{speed}: two ranks are {how} one process"


def is_impossible(times: pd.Series, spec: str) -> bool:
    """Whether the machine did something else meanwhile, by what the rule allows.

    A step is no shorter than its bytes need, and half of the batch computes no longer than all.
    """
    link = network(spec)
    shortest = 1e3 * ddp_step(0.0, link)
    longest = 1e3 * ddp_step(times[ALONE] / 1e3, link)
    return bool(
        times[DDP] < 0.9 * max(shortest, times[ALONE])
        or times[ALONE] > 0.95 * times[ONE_PROCESS]
        or times[DDP] > 2 * longest + MOST_OVERHEAD_MS
    )
