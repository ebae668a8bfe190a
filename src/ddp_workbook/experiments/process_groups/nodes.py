"""Several nodes, all of them this machine: a torchrun each, and what it tells its ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ddp_workbook.experiments import print_environment
from ddp_workbook.experiments.process_groups.meshes import rank_box
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint
from manyranks.launcher.agents import AgentRun, run_agents
from manyranks.launcher.rendezvous import LOOPBACK, free_port

LIMIT = 180  # seconds; a busy machine needs thirty for what a quiet one does in five
NUMBERS = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
BOX = (0.98, 0.8)  # inches: the place of one rank
PER_ROW = 7  # ranks of a node in one line
STARTS: figures.FillStyle = {"linewidth": 1.3}
STORE_LINE: figures.FillStyle = {"linewidth": 1.2, "linestyle": (0, (1, 2))}
AGENT = {"facecolor": tint(series_colour(0), 0.18), "edgecolor": series_colour(0)}


def on_nodes(gpus: Sequence[int]) -> dict[str, AgentRun]:
    """Run print_environment.py by one torchrun a pretend node, with gpus[i] ranks on node i."""
    rendezvous_args = [f"--master-addr={LOOPBACK}", f"--master-port={free_port()}"]
    lines = {
        f"node {node}": [
            *(f"--nnodes={len(gpus)}", f"--node-rank={node}", f"--nproc-per-node={count}"),
            *(*rendezvous_args, "--tee=3", os.path.relpath(print_environment.__file__)),
        ]
        for node, count in enumerate(gpus)
    }
    return run_agents(lines, timeout=LIMIT, quiet=True)


def rank_environments(run: AgentRun) -> list[dict[str, str]]:
    """What each rank of this torchrun was told, as print_environment.py printed it."""
    return [json.loads(line.text) for line in run.lines if line.text.startswith('{"RANK"')]


def environment(runs: Mapping[str, AgentRun]) -> pd.DataFrame:
    """A row a rank, in the order of the ranks: the variables that torchrun has set."""
    rows = [row for run in runs.values() for row in rank_environments(run)]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(NUMBERS, int))
    columns = [*NUMBERS, "MASTER_ADDR", "MASTER_PORT"]
    return frame[columns].sort_values("RANK", ignore_index=True)


def store_node(runs: Mapping[str, AgentRun]) -> int:
    """The number of the node whose torchrun keeps the store: it listens at MASTER_PORT."""
    port = int(rank_environments(next(iter(runs.values())))[0]["MASTER_PORT"])
    (number,) = (
        node
        for node, run in enumerate(runs.values())
        if any(listen_port == port for _, listen_port in run.addresses)
    )
    return number


def devices(of_ranks: pd.DataFrame) -> pd.DataFrame:
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
        for row in of_ranks.itertuples()
    )


def ports_by_default() -> pd.DataFrame:
    """Where the store was, for command lines that say nothing of a port: a row each."""
    lines = {
        "torchrun print_environment.py": [],
        "torchrun --standalone print_environment.py": ["--standalone"],
    }
    words = {
        line: [*own, "--tee=3", os.path.relpath(print_environment.__file__)]
        for line, own in lines.items()
    }
    runs = run_agents(words, timeout=LIMIT, quiet=True)
    environments = {line: rank_environments(run)[0] for line, run in runs.items()}
    return pd.DataFrame(
        {
            "command": line,
            "MASTER_ADDR": variables["MASTER_ADDR"],
            "MASTER_PORT": variables["MASTER_PORT"],
        }
        for line, variables in environments.items()
    )


# The picture


@figures.house_style
def agents_plot(of_ranks: pd.DataFrame, store: int) -> figures.Picture:
    """A frame for each node: its torchrun, the ranks that it has started, and who asks the store.

    `of_ranks` is what `environment` returns, `store` the node whose torchrun keeps the store.
    """
    nodes = [
        list(zip(own["RANK"], own["LOCAL_RANK"], strict=True))
        for _, own in of_ranks.groupby("GROUP_RANK")
    ]
    port = of_ranks["MASTER_PORT"].iloc[0]
    lines = _lines([max(2, min(PER_ROW, len(ranks))) + 0.5 for ranks in nodes])
    across = max(right for _, right, _ in lines)
    down = max(-(-len(ranks) // PER_ROW) for ranks in nodes) + 2.1
    height = (lines[-1][2] + 1) * down
    axes = figures.sheet(across * BOX[0], height * BOX[1] + 0.3)
    axes.set(xlim=(-0.03, across), ylim=(height + 0.3 / BOX[1], 0))  # in boxes
    spots = {}
    for number, (left, right, line) in enumerate(lines):
        top = line * down
        size = right - left - 0.3, down - 0.25
        figures.box(axes, (left, top + 0.05), size, frame={"facecolor": "none"})
        axes.text(left + 0.12, top + 0.25, f"node {number}", va="center", weight="bold")
        figures.box(
            axes, (left + 0.15, top + 0.45), (0.95, 0.6), "torchrun", frame=AGENT, fontsize=11
        )
        spots[number] = left + 0.625, top + 1.05
    right, bottom = spots[store]
    white = {"facecolor": "white", "linewidth": 2.2}
    corner = right + 0.475, bottom - 0.6
    figures.box(axes, corner, (0.85, 0.6), f"store\nport {port}", frame=white, fontsize=8.5)
    at = corner[0] + 0.39, bottom
    for number, (ranks, (left, _, line)) in enumerate(zip(nodes, lines, strict=True)):
        asking = [] if number == store else [spots[number]]
        for index, (rank, local) in enumerate(ranks):
            x = left + 0.1 + index % PER_ROW
            y = line * down + 1.75 + index // PER_ROW
            if index < PER_ROW:
                figures.arrow(axes, spots[number], (x + 0.42, y + 0.08), **STARTS)
                asking.append((x + 0.58, y + 0.08))
            rank_box(axes, (x, y), (1, 1), rank, f"rank {rank}", f"local {local}")
        for spot in asking:
            axes.plot(*zip(spot, at, strict=True), color=INK, zorder=0, **STORE_LINE)
    for words, look in {"has started": STARTS, "knows the store's address": STORE_LINE}.items():
        axes.plot([], [], color=INK, label=words, **look)
    axes.legend(loc="lower left", ncols=2)
    parts = []
    for number, ranks in enumerate(nodes):
        own = ", ".join(f"{rank} (local {local})" for rank, local in ranks)
        keeps = f" and keeps the store at port {port}" if number == store else ""
        parts.append(f"The torchrun of node {number} has started the ranks {own}{keeps}.")
    return figures.Picture(
        axes.figure,
        f"{len(nodes)} nodes, each with a torchrun and its ranks. {' '.join(parts)} All ranks, and "
        "the other torchruns, know the store's address.",
    )


def _lines(widths: Sequence[float]) -> list[tuple[float, float, int]]:
    """(left, right, line) of each node: side by side as long as there is room for their boxes."""
    places, left, line = [], 0.0, 0
    for width in widths:
        if left and (left + width) * BOX[0] > figures.WIDTH:
            left, line = 0.0, line + 1
        places.append((left, left + width, line))
        left += width
    return places
