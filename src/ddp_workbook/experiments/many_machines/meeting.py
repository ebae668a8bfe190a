"""When the hosts and the ranks of a run met, read from the logs of its torchruns."""

from collections.abc import Mapping

from ddp_workbook.errors import WorkbookError
from ddp_workbook.figures.many_machines.meeting import Meeting, Stay
from ddp_workbook.launcher.agents import AgentRun, error_of


def rendezvous(runs: Mapping[str, AgentRun]) -> Meeting:
    """Read from the logs of a run on several hosts when who waited for whom.

    Raises WorkbookError if a torchrun failed: there is nothing to read then.
    """
    failed = {host: error_of(run.lines) for host, run in runs.items() if run.returncode != 0}
    if failed:
        words = "; ".join(f"{host}: {error or 'stopped'}" for host, error in failed.items())
        raise WorkbookError(f"The hosts did not get to the end of the program. {words}")
    zero = min(run.started for run in runs.values())
    met, stays, given = _roll_call(runs) - zero, [], []
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
            connected = _when(run, "client socket has connected", local_rank) - zero
            there = min(connected, met)  # --tee is a little late, and not for all lines alike
            rank = int(variables["RANK"])
            stays += [
                Stay(host, rank, "starts", run.born[local_rank] - zero, there),
                Stay(host, rank, "waits", there, met),
                Stay(host, rank, "works", met, ends),
            ]
    store = next(host for host, run in runs.items() if run.listens)
    return Meeting(stays, max(given), met, store)


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
