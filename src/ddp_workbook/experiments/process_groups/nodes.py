"""Several nodes, all of them this machine: a torchrun each, and what it tells its ranks."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ddp_workbook.figures.process_groups.agents import Agents, Node
from ddp_workbook.launcher.agents import AgentRun, run_agents
from ddp_workbook.launcher.rendezvous import LOOPBACK, free_port

WHO = Path(__file__).with_name("who.py")
LIMIT = 180  # seconds; a busy machine needs thirty for what a quiet one does in five
NUMBERS = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


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
