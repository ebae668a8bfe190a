"""Several nodes, all of them this machine: a torchrun each, and what it tells its ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ddp_workbook import figures
from ddp_workbook.experiments.process_groups.meshes import finish, rank_box
from ddp_workbook.figures.palette import INK, series_colour, tint
from ddp_workbook.launcher.agents import AgentRun, run_agents
from ddp_workbook.launcher.rendezvous import LOOPBACK, free_port

WHO = Path(__file__).with_name("who.py")
LIMIT = 180  # seconds; a busy machine needs thirty for what a quiet one does in five
NUMBERS = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
BOX = 0.98  # inches across one rank
PER_ROW = 7  # ranks of a node in one line
STARTS, ASKS = {"linewidth": 1.3}, {"linewidth": 1.2, "linestyle": (0, (1, 2))}
AGENT = series_colour(0)


class Node(NamedTuple):
    """A node's (rank, local rank) pairs, and whether its torchrun keeps the store."""

    ranks: Sequence[tuple[int, int]]
    keeps_store: bool


class Agents(NamedTuple):
    """The nodes in order, and the store's address, "host:port"."""

    nodes: Sequence[Node]
    address: str


def on_nodes(gpus: Sequence[int]) -> dict[str, AgentRun]:
    """Run who.py by one torchrun a pretend node, with gpus[i] ranks on node i."""
    meeting = [f"--master-addr={LOOPBACK}", f"--master-port={free_port()}"]
    lines = {
        f"node {node}": [
            *(f"--nnodes={len(gpus)}", f"--node-rank={node}", f"--nproc-per-node={count}"),
            *(*meeting, "--tee=3", os.path.relpath(WHO)),
        ]
        for node, count in enumerate(gpus)
    }
    return run_agents(lines, timeout=LIMIT, quiet=True)


def told(run: AgentRun) -> list[dict[str, str]]:
    """What each rank of this torchrun was told, as who.py printed it."""
    return [json.loads(line.text) for line in run.lines if line.text.startswith('{"RANK"')]


def environment(runs: Mapping[str, AgentRun]) -> pd.DataFrame:
    """A row a rank, in the order of the ranks: the variables that torchrun has set."""
    rows = [one for run in runs.values() for one in told(run)]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(NUMBERS, int))
    columns = [*NUMBERS, "MASTER_ADDR", "MASTER_PORT"]
    return frame[columns].sort_values("RANK", ignore_index=True)


def agents(runs: Mapping[str, AgentRun]) -> Agents:
    """The same for a picture: each node's ranks, and whose torchrun listened at the address."""
    table = environment(runs)
    port = int(table["MASTER_PORT"][0])
    nodes = [
        Node(
            [
                *table.loc[table["GROUP_RANK"] == node, ["RANK", "LOCAL_RANK"]].itertuples(
                    index=False
                )
            ],
            keeps_store=any(listened == port for _, listened in run.listens),
        )
        for node, run in enumerate(runs.values())
    ]
    return Agents(nodes, f"{table['MASTER_ADDR'][0]}:{port}")


def devices(who: pd.DataFrame) -> pd.DataFrame:
    """For each rank, whether its node has the GPU that it asks for, by RANK and by LOCAL_RANK."""

    def has(gpu: int, row: Any) -> str:
        return f"cuda:{gpu}" + ("" if gpu < row.LOCAL_WORLD_SIZE else ": does not exist")

    return pd.DataFrame(
        {
            "node": row.GROUP_RANK,
            "its GPUs": ", ".join(f"cuda:{gpu}" for gpu in range(row.LOCAL_WORLD_SIZE)),
            "rank": row.RANK,
            "cuda:RANK": has(row.RANK, row),
            "cuda:LOCAL_RANK": has(row.LOCAL_RANK, row),
        }
        for row in who.itertuples()
    )


def ports_by_default() -> pd.DataFrame:
    """Where the store was, for command lines that say nothing of a port: a row each."""
    lines = {"torchrun who.py": [], "torchrun --standalone who.py": ["--standalone"]}
    words = {line: [*own, "--tee=3", os.path.relpath(WHO)] for line, own in lines.items()}
    runs = run_agents(words, timeout=LIMIT, quiet=True)
    found = {line: told(run)[0] for line, run in runs.items()}
    return pd.DataFrame(
        {"command": line, "MASTER_ADDR": one["MASTER_ADDR"], "MASTER_PORT": one["MASTER_PORT"]}
        for line, one in found.items()
    )


# The picture


@figures.drawn
def agents_plot(agents: Agents) -> figures.Picture:
    """A frame for each node: its torchrun, the ranks that it has started, and who asks the store.

    Raises ValueError for a rank that is there twice, or for a number of stores other than one.
    """
    ranks = [rank for node in agents.nodes for rank, _ in node.ranks]
    if len(set(ranks)) < len(ranks) or sum(node.keeps_store for node in agents.nodes) != 1:
        raise ValueError("Each rank is on one node, and one torchrun keeps the store.")
    lines = _lines([max(2, min(PER_ROW, len(node.ranks))) + 0.5 for node in agents.nodes])
    across = max(right for _, right, _ in lines)
    down = max(-(-len(node.ranks) // PER_ROW) for node in agents.nodes) + 2.1
    height = (lines[-1][2] + 1) * down
    scale = min(BOX, (figures.WIDTH - 0.1) / across)
    figure = figures.Figure((across * scale, height * scale * 0.82 + 0.3), layout="constrained")
    axes = figure.subplots()
    spots = {}
    for number, (left, right, line) in enumerate(lines):
        top = line * down
        look = {"boxstyle": "round,pad=0,rounding_size=0.12", "linewidth": 1.4}
        frame = figures.FancyBboxPatch((left, top + 0.05), right - left - 0.3, down - 0.25, **look)
        frame.set(fill=False, edgecolor=INK)
        axes.add_patch(frame)
        axes.text(left + 0.12, top + 0.25, f"node {number}", va="center", fontweight="bold")
        spots[number] = _torchrun(axes, left + 0.15, top + 0.45)
    store = next(i for i, node in enumerate(agents.nodes) if node.keeps_store)
    at = _store(axes, spots[store], agents.address)
    for number, (node, (left, _, line)) in enumerate(zip(agents.nodes, lines, strict=True)):
        if number != store:
            _asks(axes, spots[number], at)
        for index, (rank, local) in enumerate(node.ranks):
            x = left + 0.1 + index % PER_ROW
            y = line * down + 1.75 + index // PER_ROW
            if index < PER_ROW:
                head = (x + 0.42, y + 0.08)
                axes.annotate("", head, spots[number], arrowprops={"arrowstyle": "->", **STARTS})
                _asks(axes, (x + 0.58, y + 0.08), at)
            rank_box(axes, x, y, rank, f"rank {rank}", f"local {local}")
    finish(axes, across, height)
    keys = [
        figures.Line2D([], [], color=INK, label="has started", **STARTS),
        figures.Line2D([], [], color=INK, label="knows the store's address", **ASKS),
    ]
    figure.legend(handles=keys, loc="outside lower left", ncols=2)
    parts = []
    for number, node in enumerate(agents.nodes):
        own = ", ".join(f"{rank} (local {local})" for rank, local in node.ranks)
        keeps = f" and keeps the store at {agents.address}" if node.keeps_store else ""
        parts.append(f"The torchrun of node {number} has started the ranks {own}{keeps}.")
    return figures.Picture(
        figure,
        f"{len(agents.nodes)} nodes, each with a torchrun and its ranks. {' '.join(parts)} All "
        "ranks, and the other torchruns, know the store's address.",
    )


def _lines(widths: Sequence[float]) -> list[tuple[float, float, int]]:
    """(left, right, line) of each node: side by side as long as there is room for their boxes."""
    places, left, line = [], 0.0, 0
    for width in widths:
        if left and (left + width) * BOX > figures.WIDTH:
            left, line = 0.0, line + 1
        places.append((left, left + width, line))
        left += width
    return places


def _torchrun(axes: figures.Axes, x: float, y: float) -> tuple[float, float]:
    """The agent's box; where the lines to its ranks begin."""
    look = {"facecolor": tint(AGENT, 0.18), "edgecolor": AGENT, "linewidth": 1.6}
    axes.add_patch(figures.Rectangle((x, y), 0.95, 0.6, **look))
    axes.text(x + 0.475, y + 0.3, "torchrun", ha="center", va="center")
    return x + 0.475, y + 0.6


def _store(axes: figures.Axes, torchrun: tuple[float, float], address: str) -> tuple[float, float]:
    """The store's box, beside the torchrun that keeps it; where the lines to it end."""
    x, y = torchrun[0] + 0.475, torchrun[1] - 0.6
    axes.add_patch(
        figures.Rectangle((x, y), 0.78, 0.6, facecolor="white", edgecolor=INK, linewidth=2.2)
    )
    axes.text(x + 0.39, y + 0.2, "store", ha="center", va="center", fontweight="bold")
    port = address.rpartition(":")[2]
    axes.text(x + 0.39, y + 0.42, f"port {port}", ha="center", va="center", fontsize=8)
    return x + 0.39, y + 0.6


def _asks(axes: figures.Axes, one: tuple[float, float], store: tuple[float, float]) -> None:
    axes.plot(*zip(one, store, strict=True), color=INK, zorder=0, **ASKS)
