"""A sharded step on a network to order: which of its messages wait, and which are hidden."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import forward_and_backward, setup
from ddp_workbook.chapters.make_it_fast import Step, ddp
from ddp_workbook.experiments.collectives.message_times import time_steps
from ddp_workbook.experiments.make_it_fast.ladder import (
    ALONE,
    RANKS,
    Way,
    rungs_plot,
    silent,
    steps_on_digits,
    table_of,
)
from ddp_workbook.experiments.make_it_fast.step_breakdown import step_plot
from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.network.links import BYTES_FACTORS
from manyranks.network.links import network as parse_network

WIDTH, DEPTH, ROWS = 512, 8, 512  # 7.5 MB of weights; rows of each rank
STEPS, ROUNDS = 4, 4
NETWORK = "500 Mbit/s, 0.2 ms"
LINKS = ("300 Mbit/s, 0.2 ms", NETWORK, "2 Gbit/s, 0.2 ms", "Ethernet 10G")
DDP = "DDP, buckets of 1 MiB"
NODES, IN_NODE = 2, 2
HSDP_WIDTH, FEWER = 256, 128  # width and rows of a rank, where four ranks share two cores
INTER_NODE_SPEEDS = ("300 Mbit/s", "1 Gbit/s", "3 Gbit/s", "10 Gbit/s")


def shard_layers(
    model: nn.Module,
    mesh: DeviceMesh,
    *,
    background: bool = False,
    prefetch: int = 0,
    reshard_after_forward: bool = True,
) -> nn.Module:
    """Shard each layer by itself, then the rest; `prefetch` is a number of layers."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for module in (*layers, model):
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard_after_forward)
    model._set_unshard_async_op(background)
    for number, layer in enumerate(layers):
        before, after = layers[:number], layers[number + 1 :]
        layer.set_modules_to_forward_prefetch(after[:prefetch])
        layer.set_modules_to_backward_prefetch(before[::-1][:prefetch])
    return model


WAYS: dict[str, dict] = {
    "one by one": {},
    "in the background": {"background": True},
    "and one ahead": {"background": True, "prefetch": 1},
    "and kept whole": {
        "background": True,
        "prefetch": 1,
        "reshard_after_forward": False,
    },
}
STRATEGIES = {"DDP": None, "FSDP over all": (NODES * IN_NODE,), "HSDP": (NODES, IN_NODE)}


def fsdp(model: nn.Module, shape: tuple[int, ...] | None = None, **way: Any) -> Step:
    """The step of this model, sharded over a mesh of this shape, or over all ranks."""
    device = next(model.parameters()).device.type
    names = ("replicate", "shard")[-len(shape or (1,)) :]
    mesh = init_device_mesh(device, shape or (dist.get_world_size(),), mesh_dim_names=names)
    return partial(forward_and_backward, shard_layers(model, mesh, **way))


def seconds_of(ways: dict[str, Way], width: int, rows: int, rounds: int) -> dict[str, list[float]]:
    """In a rank: the seconds of each way's step in each round, and those without communication."""
    step_of, silently = steps_on_digits(width, DEPTH), {ALONE: silent}
    return time_steps({name: step_of(way, rows) for name, way in (silently | ways).items()}, rounds)


# One step, looked at


def train(way: str) -> None:
    """A worker: some steps of a sharded model."""
    device = setup()
    torch.manual_seed(0)
    model, digits = DigitsMLP(WIDTH, DEPTH).to(device), DigitsDataset()
    step = fsdp(model, **WAYS[way])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images, labels = digits.images[:ROWS].to(device), digits.labels[:ROWS].to(device)
    for _ in range(STEPS):
        optimizer.zero_grad()
        step(images, labels, RANKS * ROWS)
        optimizer.step()


def steps(way: str = next(iter(WAYS)), network: str = NETWORK) -> ddp_workbook.Timeline:
    """The timeline of a sharded model's steps on two ranks."""
    return ddp_workbook.timeline(train, way, ranks=RANKS, steps=2, network=network)


def play_step() -> ddp_workbook.Play:
    """One step of a way, on a network."""
    first, *other_ways = WAYS
    return ddp_workbook.play(
        steps,
        step_plot,
        ranks=None,
        stills=[{"way": way} for way in other_ways]
        + [{"network": LINKS[0]}, {"network": LINKS[3]}],
        way=ddp_workbook.slider("collectives", WAYS, first),
        network=ddp_workbook.slider("network", LINKS, NETWORK),
    )


# All ways, timed


def measure(network: str | None = NETWORK, rounds: int = ROUNDS) -> pd.DataFrame:
    """Milliseconds of a step: a row a way. Columns: compute, and exposed beyond it."""
    ways: dict[str, Way] = {DDP: ddp} | {name: partial(fsdp, **way) for name, way in WAYS.items()}
    of_ranks = launch(
        seconds_of, ways, WIDTH, ROWS, rounds, ranks=RANKS, network=network, timeout=300
    )
    return table_of(of_ranks, ALONE)


def up_to(table: pd.DataFrame, way: str) -> figures.Picture:
    """The bars from the first to this way."""
    return rungs_plot(table.loc[:way], NETWORK)


def communication_table(network: str = NETWORK) -> pd.DataFrame:
    """What a step has on the wire, if nothing is hidden: calls, MB sent by a rank, and ms."""
    sizes = [4 * sum(parameter.numel() for parameter in layer.parameters()) for layer in linears()]

    def row(op: str) -> dict[str, float]:
        megabytes = BYTES_FACTORS[op](RANKS) * sum(sizes) / 1e6
        link = parse_network(network)
        seconds = sum(link.seconds(op, size, [*range(RANKS)], RANKS) for size in sizes)
        return {"calls": len(sizes), "MB sent": round(megabytes, 1), "ms": round(1e3 * seconds)}

    calls = {
        "FSDP, all-gather in forward": "all_gather",
        "FSDP, all-gather in backward": "all_gather",
        "FSDP, reduce-scatter in backward": "reduce_scatter",
        "DDP, all-reduce in backward": "all_reduce",
    }
    return pd.DataFrame({name: row(op) for name, op in calls.items()}).T.astype({"calls": int})


def linears() -> list[nn.Linear]:
    """The layers of the model."""
    return [module for module in DigitsMLP(WIDTH, DEPTH).modules() if isinstance(module, nn.Linear)]


# Two networks


def play_two_networks() -> ddp_workbook.Play:
    """DDP, FSDP and HSDP on two nodes, with a slider for the network between them."""
    return ddp_workbook.play(
        time_strategies,
        strategies_plot,
        ranks=NODES * IN_NODE,
        stills=[{"network": two_node_network(speed)} for speed in INTER_NODE_SPEEDS[1:]],
        network=ddp_workbook.slider(
            "network",
            map(two_node_network, INTER_NODE_SPEEDS),
            two_node_network(INTER_NODE_SPEEDS[0]),
        ),
    )


def two_node_network(speed: str) -> str:
    """Two nodes with this speed between them."""
    return f"{speed}, 0.1 ms; {NODES} nodes; inside NVLink 4"


def time_strategies() -> dict[str, list[float]]:
    """A worker: seconds of a step of each of STRATEGIES."""
    ahead = WAYS["and one ahead"]
    ways: dict[str, Way] = {
        name: partial(fsdp, shape=shape, **ahead) if shape else ddp
        for name, shape in STRATEGIES.items()
    }
    return seconds_of(ways, HSDP_WIDTH, FEWER, rounds=1)


def strategies_plot(of_ranks: list[dict], network: str, **_: object) -> figures.Picture:
    """A bar a strategy."""
    return rungs_plot(table_of(of_ranks, ALONE).drop(index=ALONE), network, rows=FEWER)
