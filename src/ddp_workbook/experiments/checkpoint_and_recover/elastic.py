"""Hosts that come and go, and ranks that start again: torchruns on pretend hosts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ddp_workbook.chapters import checkpoint_and_recover
from ddp_workbook.experiments.checkpoint_and_recover.traced_training import EVENT_PREFIX, NOTE
from manyranks import figures
from manyranks.files import temporary_folder
from manyranks.launcher.agents import AgentRun, error_of, run_agents
from manyranks.launcher.launch import launch
from manyranks.launcher.rendezvous import LOOPBACK, free_port

TIMEOUT_S = 180  # seconds; a busy machine needs thirty for what a quiet one does in nine
RESULTS_FILE = Path(__file__).parents[4] / "data" / "checkpoint_and_recover" / "elastic.json"
TRACED_TRAINING = ("-m", "ddp_workbook.experiments.checkpoint_and_recover.traced_training")
FAILING_PROGRAM = ("-m", "ddp_workbook.experiments.checkpoint_and_recover.failing_program")
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
SHARED_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0", "OMP_NUM_THREADS": "1"}
STARTS = "waits or starts"
TRIES = 20  # failures of each kind
HOST_LOSS_STEP, EVERY = 12, 5  # the step after which a host is lost; steps from save to save


def empty_folder(name: str) -> Path:
    """A folder for saves that ends with the kernel."""
    folder = temporary_folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def lose_a_host(victim: str = "node b") -> dict[str, AgentRun]:
    """Two pretend nodes, one rank each; one is lost, and comes back once the other saves alone."""
    folder = empty_folder("hosts")
    line = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3"]
    line += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{LOOPBACK}:{free_port()}"]
    line += ["--rdzv-conf", "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=8"]
    line += ["--local-addr", LOOPBACK, "--tee", "3", *TRACED_TRAINING, "--saved", str(folder)]
    line += ["--every", str(EVERY), "--pace", "0.25"]
    accident = ["--accident", "host-dies", str(HOST_LOSS_STEP)]
    nodes = {name: line + accident * (name == victim) for name in ("node a", "node b")}
    alone = folder / f"step_{3 * EVERY:06}_*"
    return run_agents(
        nodes | {f"{victim} again": line},
        timeout=TIMEOUT_S,
        delays={"node b": 1.0, f"{victim} again": alone},
        environment={"LOGLEVEL": "INFO"} | OWN_STORE,
        quiet=True,
    )


def events(runs: Mapping[str, AgentRun]) -> pd.DataFrame:
    """What the ranks of `traced_training` have said, a row a line, in the order of time."""
    rows = [
        {"node": node.removesuffix(" again")} | json.loads(line.text.partition(EVENT_PREFIX)[2])
        for node, run in runs.items()
        for line in run.lines
        if line.text.startswith(EVENT_PREFIX)
    ]
    table = pd.DataFrame(rows).rename(columns=str.lower)
    table["time"] -= table["time"].min()
    return table.sort_values("time", ignore_index=True)


def record() -> None:
    """Write data/checkpoint_and_recover/elastic.json anew, in a quarter of an hour."""
    runs = lose_a_host()
    assert [run.returncode for run in runs.values()] == [0, -9, 0]
    log = events(runs).drop(columns=["pid", "master_port", NOTE.lower()]).round(3)
    survivor = lose_a_host("node a")["node b"]
    stores = {"one store for all attempts": SHARED_STORE, "a new store for each": OWN_STORE}
    results = {
        "about": f"torch {torch.__version__}, pretend nodes on two shared cores",
        "lost and back": log.to_dict("records"),
        "store lost": {"exit code": survivor.returncode, "error": error_of(survivor.lines)},
        "restarts needed": {
            name: [restarts_needed(store) for _ in range(TRIES)] for name, store in stores.items()
        },
    }
    RESULTS_FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def read_results() -> dict:
    """What `record` has written; its "lost and back" are `events` of `lose_a_host`."""
    results = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    survivor = pd.DataFrame([results["store lost"]], index=["node b"])
    return results | {
        "lost and back": pd.DataFrame(results["lost and back"]),
        "store lost": survivor,
    }


def attempts(log: pd.DataFrame) -> pd.DataFrame:
    """A row for each time that ranks were started: who, from which step to which, and when."""
    born = log["event"].eq("started")
    of_rank = log.assign(life=born.groupby(log["node"]).cumsum())
    steps = of_rank[of_rank["event"] == "step"]
    rows = steps.groupby(["world_size", "torchelastic_restart_count", "node", "life"], sort=False)
    table = rows.first()[["step", "time"]].rename(columns={"step": "first", "time": "start"})
    table[["last", "end"]] = rows.last()[["step", "time"]]
    return table.reset_index().sort_values(["start", "node"], ignore_index=True)


def attempts_table(log: pd.DataFrame) -> pd.DataFrame:
    """For readers."""
    table = attempts(log)
    return pd.DataFrame(
        {
            "node": table["node"],
            "ranks": table["world_size"],
            "restarts counted": table["torchelastic_restart_count"],
            "first step": table["first"],
            "last step": table["last"],
            "seconds": table["end"].round(1).sub(table["start"].round(1)).round(1),
        }
    )


@figures.house_style
def hosts_plot(log: pd.DataFrame) -> figures.Picture:
    """A lane a node: when it trained, and which steps."""
    rows = []
    for node, lives in attempts(log).groupby("node"):
        ready = 0.0 if node == "node a" else log.loc[log["node"] == node, "time"].min()
        for life in lives.itertuples():
            starts = log[(log["node"] == node) & (log["event"] == "started")]["time"]
            born = starts[starts < life.start].max()
            start = ready if life.life == 1 or node == "node a" else born
            rows.append({"what": STARTS, "start": start, "end": life.start, "text": ""})
            words = f"{life.first}-{life.last}"
            rows.append({"what": "trains", "start": life.start, "end": life.end, "text": words})
            rows[-2]["lane"] = rows[-1]["lane"] = node
            ready = life.end
    return figures.lanes(
        pd.DataFrame(rows),
        "seconds",
        "When each node trains, and which steps",
        order=["node a", "node b"],
        by="rank",
        tinted=[STARTS],
    )


# A restart on one host


def run_two_ranks(*words: str, environment: Mapping[str, str] = OWN_STORE) -> AgentRun:
    """A torchrun with two ranks on this host; `words` are the rest of its line."""
    line = ["--standalone", "--nproc-per-node", "2", *words]
    runs = run_agents({"": line}, timeout=TIMEOUT_S, environment=environment, quiet=True)
    return runs[""]


def run_with_kill(step: int, name: str, every: int, *words: str) -> AgentRun:
    """Rank 1 of two is killed after `step`, and torchrun starts both again; saves go to `name`."""
    line = ["--max-restarts", "3", "--tee", "3", *TRACED_TRAINING, "--epochs", "1", *words]
    line += ["--accident", "rank-1-dies", str(step)]
    line += ["--saved", str(empty_folder(name)), "--every", str(every)]
    return run_two_ranks(*line, environment=OWN_STORE | {"LOGLEVEL": "INFO"})


def run_with_restart() -> AgentRun:
    """Rank 1 is killed after step 7."""
    return run_with_kill(7, "restart", 5)


def state_across_restart(run: AgentRun) -> pd.DataFrame:
    """What rank 0 saw in the first attempt, and in the one after the restart."""
    log = events({"this node": run})
    loads = log[(log["event"] == "loaded") & (log["rank"] == 0)]
    names = {
        "pid": "process",
        "master_port": "MASTER_PORT",
        "torchelastic_restart_count": "TORCHELASTIC_RESTART_COUNT",
        NOTE.lower(): f"{NOTE} at the start",
        "step": "steps done, from the folder",
    }
    starts = log[(log["event"] == "started") & (log["rank"] == 0)]
    note = starts[NOTE.lower()].replace("", "not set").tolist()[: len(loads)]
    table = loads.assign(**{NOTE.lower(): note})[list(names)].rename(columns=names).T
    table.columns = ["first attempt", "after the restart"][: len(loads)]
    return table


def restarts_needed(environment: Mapping[str, str]) -> int | None:
    """Rank 1 fails once: after how many restarts all ranks meet; None if they never do."""
    run = run_two_ranks("--max-restarts", "3", *FAILING_PROGRAM, "once", environment=environment)
    match = re.search(r"all ranks have met in attempt (\d)", run.output)
    return int(match[1]) if match else None


def clean_restarts(restarts: Mapping[str, list[int | None]]) -> pd.DataFrame:
    """A row for each way to keep the store: how many of the failures took how many restarts."""
    rows = {
        name: {
            "failures": len(counts),
            "1 restart": counts.count(1),
            "2 or 3": counts.count(2) + counts.count(3),
            "never": counts.count(None),
        }
        for name, counts in restarts.items()
    }
    return pd.DataFrame(rows).T


# The line that names the cause


def report(*words: str) -> str:
    """torchrun's report on a failed run of failing_program.py, from "Root Cause" on."""
    run = run_two_ranks(*FAILING_PROGRAM, *words)
    text = run.output[run.output.index("Root Cause") :]
    return re.sub(r"^=+$", "", text, flags=re.MULTILINE).strip()


# Another number of ranks


def furthest_loss() -> float:
    """An epoch on two ranks and the next on one, against both on two: largest difference."""
    folder = str(empty_folder("ranks"))
    run: dict[str, Any] = {"batch_size": 60, "every": 30}
    launch(checkpoint_and_recover.train, epochs=1, saved=folder, ranks=2, **run)
    result = launch(checkpoint_and_recover.train, epochs=2, saved=folder, ranks=1, **run)[0]
    reference = launch(checkpoint_and_recover.train, epochs=2, ranks=2, **run)[0]
    pairs = zip(result.losses, reference.losses, strict=True)
    return max(abs(loss - reference_loss) for loss, reference_loss in pairs)


# Told to stop

CASES = {
    "SIGTERM": ("SIGTERM", []),
    "SIGTERM, --shutdown-timeout 1": ("SIGTERM", ["--shutdown-timeout", "1"]),
    "SIGUSR1": ("SIGUSR1", []),
    "SIGUSR1, --signals-to-handle SIGTERM,SIGUSR1": (
        "SIGUSR1",
        ["--signals-to-handle", "SIGTERM,SIGUSR1"],
    ),
}


def signal_outcomes() -> pd.DataFrame:
    """A row for each of CASES, (signal to torchrun, options): what is left if a save takes 3 s.

    The cases run side by side.
    """
    folders = {name: empty_folder(name) for name in CASES}
    lines = {
        name: [
            *("--standalone", "--nproc-per-node", "1", *options, "--tee", "3", *TRACED_TRAINING),
            *("--accident", signal, "7", "--slow-disk", "3", "--pace", "0.2"),
            *("--saved", str(folders[name]), "--every", "5"),
        ]
        for name, (signal, options) in CASES.items()
    }
    runs = run_agents(lines, timeout=TIMEOUT_S, environment=OWN_STORE, quiet=True)
    return pd.DataFrame(
        {
            "torchrun ends with": [run.returncode for run in runs.values()],
            "newest save": [newest_save(folder) for folder in folders.values()],
            "half a file": [(folder / "unfinished").exists() for folder in folders.values()],
        },
        index=list(CASES),
    )


def newest_save(folder: Path) -> str:
    """After which step."""
    saves = sorted(path.name[5:11] for path in folder.glob("step_*"))
    return f"after step {int(saves[-1])}" if saves else "none"
