"""Chapter 07: one program under several launchers, how hosts meet, and what goes wrong there."""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch.distributed as dist

from ddp_workbook.errors import RankFailed, WorkbookError
from ddp_workbook.figures.many_machines import Stay
from ddp_workbook.launcher.agents import AgentRun, error_of, run_agents
from ddp_workbook.launcher.launch import launch

CHECKOUT = Path(__file__).parents[3]
RECORDED = CHECKOUT / "data" / "many_machines"
PROGRAM = CHECKOUT / "src" / "ddp_workbook" / "chapters" / "many_machines.py"
LOOPBACK = "127.0.0.1"
LIMIT = 180  # seconds; a busy machine needs thirty for what a quiet one does in nine
# What torchrun tells a rank, in the order of the page.
TOLD = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
# torch then says when an agent joins, and when a worker reaches the store.
TALKATIVE = {"LOGLEVEL": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"}


# One program, several launchers


def on_hosts(
    *words: str,
    hosts: int = 2,
    ranks: int = 2,
    delay: float = 1.0,
    quiet: bool = False,
    timeout: float = LIMIT,
) -> dict[str, AgentRun]:
    """Run the chapter's program by one torchrun a pretend host, `ranks` ranks on each.

    `words` are the program's own arguments. Each host starts `delay` seconds after the one before.
    All hosts are this machine, and meet on its loopback address.
    """
    names = [f"host {letter}" for letter in "abcdefgh"[:hosts]]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{LOOPBACK}:{free_port()}"]
    line = ["--nnodes", str(hosts), "--nproc-per-node", str(ranks), *meeting]
    line += ["--local-addr", LOOPBACK, "--tee", "3", program(), *words]
    delays = {name: number * delay for number, name in enumerate(names)}
    return run_agents(
        dict.fromkeys(names, line),
        timeout=timeout,
        delays=delays,
        environment=TALKATIVE,
        quiet=quiet,
    )


def on_one_host(
    *words: str, ranks: int = 2, quiet: bool = False, timeout: float = LIMIT
) -> AgentRun:
    """Run the chapter's program by a single torchrun."""
    line = ["--standalone", "--nproc-per-node", str(ranks), "--tee", "3", program(), *words]
    return run_agents({"this host": line}, timeout=timeout, quiet=quiet)["this host"]


def program() -> str:
    """The path of the chapter's program, as one types it in the notebook's folder."""
    return os.path.relpath(PROGRAM)


def free_port() -> int:
    """A port where nobody listens at this moment; the next moment may be another's."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def environment_table(runs: Mapping[str, AgentRun]) -> pd.DataFrame:
    """A row a rank: its host, and what torchrun put into its environment."""
    rows = [
        {"host": host, **{name: variables.get(name, "") for name in TOLD}}
        for host, run in runs.items()
        for _, variables in sorted(run.environments.items())
    ]
    return pd.DataFrame(rows).sort_values("RANK", ignore_index=True)


# How the hosts meet


class Meeting(NamedTuple):
    """What the picture of a rendezvous shows; times in seconds since the first torchrun began."""

    stays: list[Stay]
    ranks_given: float  # when the last agent knew its ranks
    group_met: float  # when rank 0 printed what all ranks had told it
    store_host: str  # whose torchrun kept the store
    store_address: str  # and where it listened there


def rendezvous(runs: Mapping[str, AgentRun]) -> Meeting:
    """Read from the logs of a run on several hosts when who waited for whom.

    Raises WorkbookError if a torchrun failed: there is nothing to read then.
    """
    failed = {host: error_of(run.lines) for host, run in runs.items() if run.returncode != 0}
    if failed:
        words = "; ".join(f"{host}: {error or 'stopped'}" for host, error in failed.items())
        raise WorkbookError(f"The hosts did not get to the end of the program. {words}")
    zero = min(run.started for run in runs.values())
    printed = [
        line.time for run in runs.values() for line in run.lines if is_output(line, runs.values())
    ]
    met, stays, given = min(printed) - zero, [], []
    for host, run in runs.items():
        joins = _when(run, "Rendezvous'ing worker group") - zero
        knows = _when(run, "Rendezvous complete") - zero
        ends = _when(run, "worker group successfully finished") - zero
        given.append(knows)
        stays += [
            Stay(host, None, "starts", run.started - zero, joins),
            Stay(host, None, "waits", joins, knows),
            Stay(host, None, "works", knows, run.ended - zero),
        ]
        for local_rank, variables in sorted(run.environments.items()):
            there = _when(run, "client socket has connected", local_rank) - zero
            rank = int(variables["RANK"])
            stays += [
                Stay(host, rank, "starts", run.born[local_rank] - zero, there),
                Stay(host, rank, "waits", there, met),
                Stay(host, rank, "works", met, ends),
            ]
    store = next(host for host, run in runs.items() if run.listens)
    address = sorted(runs[store].listens)[0][0]
    return Meeting(stays, max(given), met, store, address)


def is_output(line, runs) -> bool:
    """True for what a rank's program printed."""
    return line.local_rank is not None and not line.log


def _when(run: AgentRun, words: str, local_rank: int | None = None) -> float:
    for line in run.lines:
        if line.log and line.local_rank == local_rank and words in line.text:
            return line.time
    raise WorkbookError(f"The log of {run.host} does not say {words!r}.")


# What breaks


class Fault(NamedTuple):
    """Something that goes wrong: what, what was run, the line that tells, and what to do."""

    what: str
    command: str
    message: str
    mend: str


MENDS = {
    "a name that nobody can resolve": "take the address, or a name from `getent hosts NAME`, on "
    "every host",
    "a port that is taken": "ask for a free one when the job starts; never write a number into a "
    "script",
    "a host that never comes": "compare the command lines: --nnodes, --rdzv-endpoint and --rdzv-id "
    "must be equal on all hosts",
    "an interface that does not exist": "`ip addr` lists the interfaces; leave the variable out "
    "unless gloo or NCCL picks a wrong one",
}
# The line in a long report that says what is wrong.
TELLING = re.compile(
    r"gai error.*|EADDRINUSE.*|Rendezvous\w*TimeoutError.*|Unable to find (?:address|interface).*"
)


def what_breaks() -> pd.DataFrame:
    """Cause four mistakes on this machine, at the same time; each with torch's own words."""
    with taken_port() as port:
        commands = {
            "a name that nobody can resolve": _two_hosts("no-such-host.invalid:29500", "read", 1),
            "a port that is taken": ["--master-addr", LOOPBACK, "--master-port", str(port)],
            "a host that never comes": _two_hosts(f"{LOOPBACK}:{free_port()}", "join", 1),
        }
        lines = {what: [*words, program()] for what, words in commands.items()}
        runs = run_agents(lines, timeout=LIMIT, quiet=True)
    faults = [
        Fault(what, run.command, telling_line(run), MENDS[what]) for what, run in runs.items()
    ]
    what = "an interface that does not exist"
    command = "GLOO_SOCKET_IFNAME=eth9 torchrun …"
    faults.append(Fault(what, command, _meet_by("eth9"), MENDS[what]))
    return pd.DataFrame(faults)


def _two_hosts(endpoint: str, timeout: str, seconds: int) -> list[str]:
    """torchrun's words for one of two hosts; it waits briefly, in place of minutes."""
    words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    return [*words, "--rdzv-conf", f"{timeout}_timeout={seconds}"]


def telling_line(run: AgentRun) -> str:
    """The part of torchrun's output that says what is wrong; its last error where none does."""
    found = [match[0] for line in run.lines if (match := TELLING.search(line.text))]
    return found[0] if found else error_of(run.lines)


@contextmanager
def taken_port() -> Iterator[int]:
    """A port of this machine where somebody else listens already."""
    with socket.socket() as somebody:
        somebody.bind((LOOPBACK, 0))
        somebody.listen()
        yield somebody.getsockname()[1]


def _meet_by(interface: str) -> str:
    """What gloo says of a network interface that is not there."""
    try:
        launch(join_by, interface, ranks=2, timeout=LIMIT)
    except RankFailed as failed:
        match = TELLING.search(failed.reason)
        return match[0] if match else failed.reason
    return "no error"


def join_by(interface: str) -> None:
    """A worker that joins a group by this interface, as GLOO_SOCKET_IFNAME asks for."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group("gloo")
    dist.destroy_process_group()
