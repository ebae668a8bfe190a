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
PER_ROW = 8  # ranks of a node in one line
NARROWEST, WIDEST = 0.98, 1.42  # inches: the place of one rank
HEAD, RANK = 1.32, 0.86  # inches: from the top of a node to its ranks; a line of ranks
GAP, LINK, STORE = 0.15, 0.3, 0.4  # inches: between lines of nodes; down to the store; its height
BETWEEN = 0.15  # places of ranks between two nodes
AGENT_SIZE = (1.15, 0.44)
STORE_LINE: figures.FillStyle = {"linewidth": 1.6, "linestyle": (0, (1, 1.5))}
NODE = {"facecolor": "#f1f1f1", "edgecolor": "none"}
AGENT = {"facecolor": tint(series_colour(0), 0.3), "edgecolor": series_colour(0)}


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
    """For each rank, whose GPU it asks for by RANK and by LOCAL_RANK, if its node has that one."""

    def has(gpu: int, row: Any) -> str:
        if gpu >= row.LOCAL_WORLD_SIZE:
            return f"cuda:{gpu}: does not exist"
        own = gpu == row.LOCAL_RANK
        return f"cuda:{gpu}" + (
            "" if own else f": the GPU of rank {row.RANK - row.LOCAL_RANK + gpu}"
        )

    return pd.DataFrame(
        {
            "node": row.GROUP_RANK,
            "GPUs of the node": ", ".join(f"cuda:{gpu}" for gpu in range(row.LOCAL_WORLD_SIZE)),
            "RANK": row.RANK,
            "LOCAL_RANK": row.LOCAL_RANK,
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
    """An area for each node: its torchrun and the ranks that it has started; the store below.

    `of_ranks` is what `environment` returns, `store` the node whose torchrun keeps the store.
    """
    nodes = [
        list(zip(own["RANK"], own["LOCAL_RANK"], strict=True))
        for _, own in of_ranks.groupby("GROUP_RANK")
    ]
    places, lines = _places([max(2, min(PER_ROW, len(ranks))) for ranks in nodes])
    across = max(left + width for left, width, _ in places)
    unit = min(WIDEST, (figures.WIDTH - 0.1) / across)  # inches: the place of one rank
    down = HEAD + RANK * max(-(-len(ranks) // PER_ROW) for ranks in nodes) + 0.12
    bar = lines * (down + GAP) - GAP + LINK
    axes = figures.sheet(across * unit + 0.1, bar + STORE + 0.05)
    for number, (ranks, (left, width, line)) in enumerate(zip(nodes, places, strict=True)):
        x, y = 0.05 + left * unit, line * (down + GAP)
        figures.box(axes, (x, y + 0.03), (width * unit, down - 0.03), frame=NODE)
        axes.text(x + 0.15, y + 0.22, f"node {number}", va="center", weight="bold", size=12)
        middle = x + width * unit / 2
        agent = middle - AGENT_SIZE[0] / 2, y + HEAD - 0.96
        figures.box(axes, agent, AGENT_SIZE, "torchrun", frame=AGENT, fontsize=12)
        start = middle, agent[1] + AGENT_SIZE[1]
        per_row = min(PER_ROW, len(ranks))
        for index, (rank, local) in enumerate(ranks):
            corner = middle + (index % PER_ROW - per_row / 2) * unit, y + HEAD
            corner = corner[0], corner[1] + index // PER_ROW * RANK
            center = corner[0] + unit / 2
            if index < PER_ROW:
                figures.arrow(axes, start, (center, corner[1] + 0.12 * RANK), linewidth=1.4)
            if index == 0 and per_row < 5:  # else the arrow is too flat for a word beside it
                spot = (start[0] + center) / 2 - 0.2, (start[1] + corner[1]) / 2
                axes.text(*spot, "starts", ha="right", va="center", size=11)
            rank_box(axes, corner, (unit, RANK), rank, f"rank {rank}", f"local {local}")
            if lines == 1 and index // PER_ROW == (len(ranks) - 1) // PER_ROW:
                ends = corner[1] + 0.88 * RANK, bar
                axes.plot([center] * 2, ends, color=INK, zorder=2, **STORE_LINE)
    where = f"{of_ranks['MASTER_ADDR'].iloc[0]}:{of_ranks['MASTER_PORT'].iloc[0]}"
    words = f"store at {where}, kept by the torchrun of node {store}"
    size = across * unit, STORE
    figures.box(axes, (0.05, bar), size, words, frame={"facecolor": "white"}, fontsize=12)
    parts = []
    for number, ranks in enumerate(nodes):
        own = ", ".join(f"{rank} (local {local})" for rank, local in ranks)
        keeps = f" and keeps the store at {where}" if number == store else ""
        parts.append(f"The torchrun of node {number} has started the ranks {own}{keeps}.")
    return figures.Picture(
        axes.figure,
        f"{len(nodes)} nodes, each with a torchrun and its ranks. {' '.join(parts)} A dotted line "
        "leads from every rank to the store, whose address all of them know.",
    )


def _places(widths: Sequence[int]) -> tuple[list[tuple[float, int, int]], int]:
    """(left, width, line) of each node in places of ranks, side by side while there is room.

    Also returns how many lines there are.
    """
    places, left, line = [], 0.0, 0
    for width in widths:
        if left and (left + width) * NARROWEST > figures.WIDTH:
            left, line = 0.0, line + 1
        places.append((left, width, line))
        left += width + BETWEEN
    return places, line + 1
