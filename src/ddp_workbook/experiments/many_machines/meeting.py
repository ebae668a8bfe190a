"""When the hosts and the ranks of a run met, read from the logs of its torchruns, and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from ddp_workbook import figures
from ddp_workbook.errors import WorkbookError
from ddp_workbook.figures.palette import INK, pale_look, rank_colour, series_colour, tint
from ddp_workbook.launcher.agents import AgentRun, error_of

KINDS = {"starts": "starts Python", "waits": "waits for the others", "works": "works"}
AGENT = series_colour(0)


class Meeting(NamedTuple):
    """When hosts and ranks met; times in seconds since the first torchrun was started.

    `stays` has a row for each bar: host, rank (nan for the torchrun itself), what (of KINDS), start
    and end.
    """

    stays: pd.DataFrame
    ranks_given: float  # when the last torchrun knew its ranks
    group_met: float  # when rank 0 printed what all ranks had told it
    store_host: str  # whose torchrun kept the store


def rendezvous(runs: Mapping[str, AgentRun]) -> Meeting:
    """Read from the logs of a run on several hosts when who waited for whom.

    Raises WorkbookError if a torchrun failed: there is nothing to read then.
    """
    failed = {host: error_of(run.lines) for host, run in runs.items() if run.returncode != 0}
    if failed:
        words = "; ".join(f"{host}: {error or 'stopped'}" for host, error in failed.items())
        raise WorkbookError(f"The hosts did not get to the end of the program. {words}")
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
            (host, None, "starts", run.started - zero, joins),
            (host, None, "waits", joins, knows),
            (host, None, "works", knows, run.ended - zero),
        ]
        for local_rank, variables in sorted(run.environments.items()):
            connected = _when(run, "client socket has connected", local_rank) - zero
            there = min(connected, met)  # --tee is a little late, and not for all lines alike
            rank = int(variables["RANK"])
            stays += [
                (host, rank, "starts", run.born[local_rank] - zero, there),
                (host, rank, "waits", there, met),
                (host, rank, "works", met, ends),
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

    def look(event: dict) -> figures.Look:
        agent = event["rank"] != event["rank"]
        colour = AGENT if agent else rank_colour(int(event["rank"]))
        if event["what"] == KINDS["waits"]:
            return pale_look(colour)
        fill = tint(colour) if event["what"] == KINDS["starts"] else colour
        return {"facecolor": fill, "edgecolor": colour, "linewidth": 1}

    events = stays.assign(lane=stays.apply(lane, axis=1), what=stays["what"].map(KINDS))
    events["end"] = events[["start", "end"]].max(axis=1)  # logs are read ten times a second
    keys = {KINDS[what]: look({"rank": float("nan"), "what": KINDS[what]}) for what in KINDS}
    unit = "seconds since the first torchrun was started"
    about = "A lane for each torchrun and for each rank"
    picture = figures.lanes(events, unit, about, by=look, keys=keys)
    # The words stand on either side of the two lines, which can be close to each other.
    marks = (
        (ranks_given, "ranks are assigned ", "right"),
        (group_met, " all ranks have met", "left"),
    )
    for time, words, side in marks:
        picture.axes.axvline(time, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
        picture.axes.text(time, -0.52, words, ha=side, va="bottom", fontsize=10)
    starts = stays[stays["what"] == "starts"]
    agents, ranks = starts[starts["rank"].isna()], starts.dropna()
    begun = ", ".join(f"the torchrun of {r.host} at {r.start:.1f} s" for r in agents.itertuples())
    placed = "; ".join(
        f"{host} has the ranks {', '.join(f'{rank:.0f}' for rank in own['rank'])}"
        for host, own in ranks.groupby("host", sort=False)
    )
    picture.alt = (
        f"A lane for each torchrun and for each rank, over time. Started: {begun}. {store_host} "
        f"keeps the store. Ranks are assigned at {ranks_given:.1f} s: {placed}. The ranks start "
        f"Python, and the group has met at {group_met:.1f} s; until then they wait for each other, "
        "and afterwards they work."
    )
    return picture
