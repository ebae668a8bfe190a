"""When the nodes and the ranks of a run met, read from the logs of its torchruns, and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from ddp_workbook import figures
from ddp_workbook.errors import WorkbookError
from ddp_workbook.figures.palette import INK
from ddp_workbook.launcher.agents import AgentRun, error_of

STARTS, WAITS, WORKS = "starts Python", "waits for the others", "works"


class Meeting(NamedTuple):
    """When nodes and ranks met; times in seconds since the first torchrun was started.

    `stays` has a row for each bar: host, rank (nan for the torchrun itself), what (STARTS, WAITS or
    WORKS), start and end.
    """

    stays: pd.DataFrame
    ranks_given: float  # when the last torchrun knew its ranks
    group_met: float  # when rank 0 printed what all ranks had told it
    store_host: str  # whose torchrun kept the store


def rendezvous(runs: Mapping[str, AgentRun]) -> Meeting:
    """Read from the logs of a run on several nodes when who waited for whom.

    Raises WorkbookError if a torchrun failed: there is nothing to read then.
    """
    failed = {host: error_of(run.lines) for host, run in runs.items() if run.returncode != 0}
    if failed:
        words = "; ".join(f"{host}: {error or 'stopped'}" for host, error in failed.items())
        raise WorkbookError(f"The nodes did not get to the end of the program. {words}")
    zero = min(run.started for run in runs.values())
    met = _roll_call(runs) - zero
    stays: list[tuple] = []
    given: list[float] = []
    for host, run in runs.items():
        joins = _when(run, "Rendezvous'ing worker group") - zero
        knows = _when(run, "Rendezvous complete") - zero
        ends = _when(run, "worker group successfully finished") - zero
        given.append(knows)
        stays += [
            (host, None, STARTS, run.started - zero, joins),
            (host, None, WAITS, joins, knows),
            (host, None, WORKS, knows, run.ended - zero),
        ]
        for local_rank, variables in sorted(run.environments.items()):
            connected = _when(run, "client socket has connected", local_rank) - zero
            there = min(connected, met)  # --tee is a little late, and not for all lines alike
            rank = int(variables["RANK"])
            stays += [
                (host, rank, STARTS, run.born[local_rank] - zero, there),
                (host, rank, WAITS, there, met),
                (host, rank, WORKS, met, ends),
            ]
    store = next(host for host, run in runs.items() if run.listens)
    table = pd.DataFrame(stays, columns=["host", "rank", "what", "start", "end"])
    return Meeting(table, max(given), met, store)


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


@figures.drawn
def rendezvous_plot(meeting: Meeting) -> figures.Picture:
    """A lane for each torchrun and for each rank: starting, waiting, working, in seconds."""
    stays, ranks_given, group_met, store_host = meeting

    def lane(stay: pd.Series) -> str:
        if stay["rank"] == stay["rank"]:
            return f"rank {stay['rank']:.0f}"
        return f"{stay['host']}: torchrun" + (", store" if stay["host"] == store_host else "")

    events = stays.assign(lane=stays.apply(lane, axis=1))
    events["end"] = events[["start", "end"]].max(axis=1)  # logs are read ten times a second
    unit = "seconds since the first torchrun was started"
    about = "A lane for each torchrun and for each rank"
    picture = figures.lanes(events, unit, about, by="rank", pale=[WAITS], tinted=[STARTS])
    # The words stand on either side of the two lines, which can be close to each other.
    marks = (
        (ranks_given, "ranks are assigned ", "right"),
        (group_met, " all ranks have met", "left"),
    )
    for time, words, side in marks:
        picture.axes.axvline(time, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
        picture.axes.text(time, -0.52, words, ha=side, va="bottom", fontsize=10)
    picture.alt += (
        f" {store_host} keeps the store. Ranks are assigned at {ranks_given:.1f} s, and the group "
        f"has met at {group_met:.1f} s."
    )
    return picture
