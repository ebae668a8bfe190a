"""The chapter's program by torchrun, on one node and on several; all of them are this machine.

When nodes and ranks have met is read from the logs of the torchruns.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ddp_workbook.chapters.results import read_results
from manyranks import figures
from manyranks.errors import WorkbookError
from manyranks.figures.palette import INK
from manyranks.files import temporary_folder
from manyranks.launcher.agents import AgentRun, error_of, run_agents
from manyranks.launcher.rendezvous import LOOPBACK, free_port

CHECKOUT = Path(__file__).parents[4]
PROGRAM = CHECKOUT / "src" / "ddp_workbook" / "chapters" / "many_machines.py"
DATA_FOLDER = CHECKOUT / "data" / "many_machines"
TIMEOUT_S = 180  # seconds; a busy machine needs thirty for what a quiet one does in nine
# What torchrun tells a rank, in the order of the page.
RANK_VARIABLES = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
JOB_LABELS = {
    "Slurm": "Slurm (recorded)",
    "PBS": "PBS script, by Slurm's qsub (recorded)",
}
# torch then says when an agent joins, and when a worker reaches the store.
VERBOSE_LOGGING = {"LOGLEVEL": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"}


def run_on_hosts(
    *words: str,
    hosts: int = 2,
    ranks: int = 2,
    delay: float = 1.0,
    quiet: bool = False,
    timeout: float = TIMEOUT_S,
) -> dict[str, AgentRun]:
    """Run the chapter's program by one torchrun a pretend node, `ranks` ranks on each.

    `words` are the program's own arguments. Each node starts `delay` seconds after the one before.
    All nodes are this machine, and meet on its loopback address.
    """
    names = [f"node{number}" for number in range(1, hosts + 1)]
    endpoint = f"{LOOPBACK}:{free_port()}"
    meeting = ["--rdzv-backend", "c10d", "--rdzv-id", "run1", "--rdzv-endpoint", endpoint]
    line = ["--nnodes", str(hosts), "--nproc-per-node", str(ranks), *meeting]
    line += ["--local-addr", LOOPBACK, "--tee", "3", program(), *words]
    delays = {name: number * delay for number, name in enumerate(names)}
    return run_agents(
        dict.fromkeys(names, line),
        timeout=timeout,
        delays=delays,
        environment=VERBOSE_LOGGING,
        quiet=quiet,
    )


def run_on_one_host(
    *words: str, ranks: int = 2, quiet: bool = False, timeout: float = TIMEOUT_S
) -> AgentRun:
    """Run the chapter's program by a single torchrun."""
    line = ["--standalone", "--nproc-per-node", str(ranks), "--tee", "3", program(), *words]
    return run_agents({"this node": line}, timeout=timeout, quiet=quiet)["this node"]


def program() -> str:
    """The path of the chapter's program, relative to the notebook's folder."""
    return os.path.relpath(PROGRAM)


def environment_table(runs: Mapping[str, AgentRun]) -> pd.DataFrame:
    """A row a rank: its node, and what torchrun put into its environment."""
    rows = [
        {"node": host, **{name: variables.get(name, "") for name in RANK_VARIABLES}}
        for host, run in runs.items()
        for _, variables in sorted(run.environments.items())
    ]
    return pd.DataFrame(rows).sort_values("RANK", ignore_index=True)


# Options that a page needs: both nodes are one computer, and a line says which rank printed it.
PAGE_OPTIONS = re.compile(r" --local-addr \S+| --tee 3")


def typed(command: str) -> str:
    """A command line as one would type it: a line for the options of the rendezvous and one for the
    program, without the options that only a page needs."""
    return re.sub(r" (?=--rdzv-backend |\S+\.py\b)", " \\\n    ", PAGE_OPTIONS.sub("", command))


def transcript(runs: Mapping[str, AgentRun]) -> str:
    """The command line of each node, then what its ranks printed."""
    lines = [f"{host} $ {typed(run.command)}" for host, run in runs.items()]
    for host, run in runs.items():
        lines += [
            f"[{host}] {line.text}"
            for line in run.lines
            if line.local_rank is not None and not line.log
        ]
    return "\n".join(lines)


def store_addresses(runs: Mapping[str, AgentRun]) -> set[str]:
    """Where torchrun's stores accepted connections: an address, or "::" for every network."""
    return {address for run in runs.values() for address, _ in run.addresses}


# The same result, whoever starts it


def new_results() -> Path:
    """A table of results for this page alone, which ends with the kernel."""
    return temporary_folder() / "results.csv"


def every_launcher(results: Path, launchers: Sequence[str]) -> pd.DataFrame:
    """A row for each run in `results`, named by what started it, and the recorded ones of jobs."""
    columns = ["ranks", "loss", "accuracy", "job", "hosts"]
    here = read_results(results)[columns]
    here.insert(0, "started by", list(launchers))
    jobs = [
        {"started by": JOB_LABELS[name]} | {column: run["row"][column] for column in columns}
        for name, run in read_jobs()["runs"].items()
    ]
    table = pd.concat([here, pd.DataFrame(jobs)], ignore_index=True)
    return table.rename(columns={"hosts": "nodes"})


def read_jobs() -> dict:
    """The runs under schedulers: {"about": where and when, "runs": {"Slurm": …, "PBS": …}}."""
    return json.loads((DATA_FOLDER / "launchers.json").read_text(encoding="utf-8"))


def read_environment(scheduler: str) -> pd.DataFrame:
    """What the ranks of the recorded job saw, the scheduler's own numbers included."""
    names = ["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR"]
    names += {"Slurm": ["SLURM_PROCID", "SLURM_NTASKS"], "PBS": []}[scheduler]
    return pd.DataFrame(read_jobs()["runs"][scheduler]["environment"])[names]


# When nodes and ranks have met


STARTS, WAITS, WORKS = "starts Python", "waits for the others", "works"


class RendezvousTimes(NamedTuple):
    """When nodes and ranks met; times in seconds since the first torchrun was started.

    `intervals` has a row for each bar: host, rank (nan for the torchrun itself), what (STARTS,
    WAITS or WORKS), start and end.
    """

    intervals: pd.DataFrame
    assignment_time: float  # when the last torchrun knew its ranks
    meeting_time: float  # when rank 0 printed what all ranks had told it
    store_host: str  # whose torchrun kept the store


def rendezvous(runs: Mapping[str, AgentRun]) -> RendezvousTimes:
    """Read from the logs of a run on several nodes when who waited for whom.

    Raises WorkbookError if a torchrun failed: there is nothing to read then.
    """
    errors = {host: error_of(run.lines) for host, run in runs.items() if run.returncode != 0}
    if errors:
        words = "; ".join(f"{host}: {error or 'stopped'}" for host, error in errors.items())
        raise WorkbookError(f"The nodes did not get to the end of the program. {words}")
    zero = min(run.start for run in runs.values())
    meeting = _roll_call(runs) - zero
    intervals: list[tuple] = []
    assignment_times: list[float] = []
    for host, run in runs.items():
        joins = _when(run, "Rendezvous'ing worker group") - zero
        knows = _when(run, "Rendezvous complete") - zero
        ends = _when(run, "worker group successfully finished") - zero
        assignment_times.append(knows)
        intervals += [
            (host, None, STARTS, run.start - zero, joins),
            (host, None, WAITS, joins, knows),
            (host, None, WORKS, knows, run.end - zero),
        ]
        for local_rank, variables in sorted(run.environments.items()):
            connection = _when(run, "client socket has connected", local_rank) - zero
            there = min(connection, meeting)  # --tee is a little late, and not for all lines alike
            rank = int(variables["RANK"])
            intervals += [
                (host, rank, STARTS, run.worker_start_times[local_rank] - zero, there),
                (host, rank, WAITS, there, meeting),
                (host, rank, WORKS, meeting, ends),
            ]
    store = next(host for host, run in runs.items() if run.addresses)
    table = pd.DataFrame(intervals, columns=["host", "rank", "what", "start", "end"])
    return RendezvousTimes(table, max(assignment_times), meeting, store)


def _roll_call(runs: Mapping[str, AgentRun]) -> float:
    """When rank 0 printed the roll call: by then the group had met."""
    for run in runs.values():
        for line in run.lines:
            if line.local_rank is not None and line.text.startswith("rank 0: host"):
                return line.time
    raise WorkbookError("No host has printed the roll call.")


def _when(run: AgentRun, words: str, local_rank: int | None = None) -> float:
    for line in run.lines:
        if line.log and line.local_rank == local_rank and words in line.text:
            return line.time
    raise WorkbookError(f"The log of {run.host} does not say {words!r}.")


@figures.house_style
def rendezvous_plot(meeting: RendezvousTimes) -> figures.Picture:
    """A lane for each torchrun and for each rank: starting, waiting, working, in seconds."""
    intervals, assignment_time, meeting_time, store_host = meeting

    def lane(interval: pd.Series) -> str:
        if interval["rank"] == interval["rank"]:
            return f"rank {interval['rank']:.0f}"
        return f"{interval['host']}: torchrun" + (
            ", store" if interval["host"] == store_host else ""
        )

    events = intervals.assign(lane=intervals.apply(lane, axis=1))
    events["end"] = events[["start", "end"]].max(axis=1)  # logs are read ten times a second
    unit = "seconds since the first torchrun was started"
    about = "A lane for each torchrun and for each rank"
    picture = figures.lanes(events, unit, about, by="rank", pale=[WAITS], tinted=[STARTS])
    # The words stand on either side of the two lines, which can be close to each other.
    marks = (
        (assignment_time, "ranks are assigned ", "right"),
        (meeting_time, " all ranks have met", "left"),
    )
    for time, words, side in marks:
        picture.axes.axvline(time, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
        picture.axes.text(time, -0.52, words, ha=side, va="bottom", fontsize=10)
    picture.alt += (
        f" {store_host} keeps the store. Ranks are assigned at {assignment_time:.1f} s, and the "
        f"group has met at {meeting_time:.1f} s."
    )
    return picture
