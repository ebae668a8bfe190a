"""How ranks meet: who is connected to whom, in which ways, and over which network."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import pandas as pd
import psutil
import torch
import torch.distributed as dist

from ddp_workbook import figures
from ddp_workbook.errors import RankFailed
from ddp_workbook.experiments.process_groups.store import Met, connections
from ddp_workbook.figures.palette import INK
from ddp_workbook.launcher.launch import launch


def pairs(met: Sequence[Met]) -> set[tuple[int, int]]:
    """The pairs of ranks between which there is a connection, the smaller rank first."""
    owner = {own: rank for rank, one in enumerate(met) for own, _ in one.after}
    return {
        (min(rank, owner[other]), max(rank, owner[other]))
        for rank, one in enumerate(met)
        for _, other in one.after
        if other in owner
    }


@figures.drawn
def connections_plot(pairs: Iterable[tuple[int, int]], ranks: int) -> figures.Picture:
    """Ranks on a circle, a line for each connection between two ranks, a dotted one to the store.

    `pairs` are the open connections, each listed once or from both ends.
    """
    joined = sorted({(min(pair), max(pair)) for pair in pairs})
    spots = _circle(ranks)
    lowest, highest = min(y for _, y in spots) - 0.25, max(y for _, y in spots) + 0.25
    axes = figures.sheet(5.4, 1.5 * (highest - lowest))
    axes.set(xlim=(-1.45, 2.1), ylim=(lowest, highest))
    for one, other in joined:
        axes.plot(*zip(spots[one], spots[other], strict=True), color=INK, linewidth=1.6, zorder=1)
    for spot in spots:
        axes.plot(*zip(spot, (1.75, 0), strict=True), color=INK, linestyle=(0, (1, 2)), lw=1.1)
    boxes = {"store": (1.75, 0.0)} | {f"rank {rank}": spot for rank, spot in enumerate(spots)}
    for place, (words, (x, y)) in enumerate(boxes.items()):
        corner, size, frame = (x - 0.26, y - 0.12), (0.52, 0.24), {"linewidth": 2, "zorder": 2}
        rank = place - 1 if place else None
        figures.box(axes, corner, size, words, rank, frame=frame, fontsize=11, zorder=3)
    lines = ", ".join(f"{one} and {other}" for one, other in joined)
    return figures.Picture(
        axes.figure,
        f"{ranks} ranks on a circle, with {len(joined)} lines, between the ranks {lines}. A dotted "
        "line joins each rank to the store.",
    )


def _circle(ranks: int) -> Sequence[tuple[float, float]]:
    """Positions of the ranks, clockwise from the top left; a single rank is in the middle."""
    if ranks == 1:
        return [(0.0, 0.0)]
    angles = [math.pi * (0.75 - 2 * rank / ranks) for rank in range(ranks)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


# Where to meet


def join(init_method: str) -> dict[str, int]:
    """Meet there over gloo; the sum of all ranks, and how many TCP connections this rank has."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if init_method.startswith("tcp:"):
        # launch and torchrun keep a store and set this. Without it rank 0 keeps the store.
        del os.environ["TORCHELASTIC_USE_AGENT_STORE"]
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world_size)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    found = len(connections())
    dist.barrier()
    return {"sum": total.item(), "connections": found}


def ways_to_meet(ways: Sequence[str], ranks: int = 4) -> pd.DataFrame:
    """A row for each way: what every rank found, and how many connections each of them had."""
    rows = []
    for way in ways:
        met = launch(join, way, ranks=ranks)
        row = {"init_method": way.partition("//")[0] + "//", "sum of the ranks": met[0]["sum"]}
        counts = {f"rank {rank}": one["connections"] for rank, one in enumerate(met)}
        rows.append(row | counts)
    return pd.DataFrame(rows)


# Which network


def interfaces() -> pd.DataFrame:
    """The network interfaces of this machine that have an IPv4 address and are up."""
    up = psutil.net_if_stats()
    return pd.DataFrame(
        {"interface": name, "address": one.address}
        for name, addresses in psutil.net_if_addrs().items()
        for one in addresses
        if one.family.name == "AF_INET" and up[name].isup
    )


def listen_by(interface: str) -> str:
    """Join a group by this interface; the address at which this rank then listens."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("gloo")
    found = psutil.Process().net_connections("tcp")
    dist.barrier()
    return next(one.laddr.ip for one in found if one.status == "LISTEN")


def gloo_by(names: Sequence[str]) -> pd.DataFrame:
    """A row for each value of GLOO_SOCKET_IFNAME: where the ranks listen, or what gloo says."""

    def outcome(name: str) -> str:
        try:
            return f"listens at {launch(listen_by, name, ranks=2)[0]}"
        except RankFailed as failed:
            return failed.reason.partition("] ")[2].strip() or failed.reason

    return pd.DataFrame({"GLOO_SOCKET_IFNAME": name, "rank 0": outcome(name)} for name in names)
