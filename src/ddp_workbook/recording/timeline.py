"""Run a worker, and see on one clock what each rank did in each step."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ddp_workbook.errors import LaunchRefused
from ddp_workbook.files import write_whole
from ddp_workbook.launcher.calls import Call, call_of
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.network.links import Network
from ddp_workbook.recording.profiled import Profiled
from ddp_workbook.recording.traces import Trace, parts_of_steps, read_traces

FLOW = ("s", "t", "f")  # start, step and end of an arrow, as from forward to its backward
LATE = 0.1  # of a step: what the others wait for the last rank at least, for it to be called late
CAUSES = {"compute": "its computing", "loading": "its loader", "other": "its Python code"}


@dataclass(frozen=True)
class Late:
    """A rank for which the others wait, in `steps` of `of` steps; `cause` is a column of parts."""

    rank: int
    steps: int
    of: int
    cause: str


@dataclass
class Timeline:
    """What each rank did: `parts`, a row a step and rank; see `parts_of_steps` for its columns."""

    traces: Sequence[Trace]
    parts: pd.DataFrame
    results: Sequence[Any] = ()

    def save(self, path: str | os.PathLike) -> Path:
        """Write all ranks into one file that Perfetto (ui.perfetto.dev) opens; a process a rank."""
        path = Path(path)
        write_whole(path, json.dumps({"traceEvents": merged(self.traces)}))
        return path

    def late(self) -> Late | None:
        """The rank for which the others wait most often, if they do in any step."""
        found = []
        for _, step in self.parts.groupby("step"):
            first = step.loc[step["waiting"].idxmin()]
            others = step[step["rank"] != first["rank"]]
            apart = others["waiting"].min() - first["waiting"]  # nan for a rank alone
            if apart > LATE * step["seconds"].max():
                more = {cause: first[cause] - others[cause].median() for cause in CAUSES}
                found.append((int(first["rank"]), max(more, key=lambda cause: more[cause])))
        if not found:
            return None
        ranks = [rank for rank, _ in found]
        most = max(set(ranks), key=ranks.count)
        causes = [cause for rank, cause in found if rank == most]
        steps = self.parts["step"].nunique()
        return Late(most, len(causes), steps, max(set(causes), key=causes.count))

    def in_a_sentence(self) -> str:
        """The share of exposed communication in a step, and who is late."""
        mean = self.parts.mean(numeric_only=True)
        exposed = f"{mean['exposed'] / mean['seconds']:.0%} of a step is exposed communication"
        if not (late := self.late()):
            return f"{exposed}; no rank is late."
        of = f"{late.steps} of {late.of} steps"
        return f"{exposed}; rank {late.rank} is late in {of} ({CAUSES[late.cause]})."

    def __repr__(self) -> str:
        return self.in_a_sentence()


def timeline(
    worker: Callable | str | os.PathLike,
    *args: Any,
    ranks: int = 2,
    steps: int = 5,
    timeout: float = 60,
    network: str | Network | None = None,
    **kwargs: Any,
) -> Timeline:
    """Run the worker as `launch` does, with torch.profiler in each rank for its first steps.

    A step ends with a step of an optimizer. The first is not in the table, because DDP makes its
    buckets anew in it, and what comes after `steps` further ones runs without the profiler. A
    worker without an optimizer is one step as a whole. A step of 20 ms with DDP took 1.03
    times as long with the profiler (2 ranks, 2 cores, medians of 5 launches in turns).

    Raises what `launch` raises, and WorkbookError if a rank has left no trace.
    """
    if steps < 1:
        raise LaunchRefused(f"steps={steps}: a timeline needs 1 or more.")
    with tempfile.TemporaryDirectory() as folder:
        call = call_of(worker, args, kwargs, ranks)
        profiled = Profiled(call.worker, Path(folder), steps)
        results = run_ranks(
            Call(profiled, call.args, call.kwargs), ranks, timeout, quiet=True, network=network
        )
        return timeline_of(read_traces(Path(folder).glob("*.json")), results)


def timeline_of(traces: Sequence[Trace], results: Sequence[Any] = ()) -> Timeline:
    """The timeline of traces that `read_traces` has read, such as a reader's own."""
    return Timeline(traces, parts_of_steps(traces), results)


def merged(traces: Sequence[Trace]) -> list[dict]:
    """The events of all ranks, a process each."""
    events: list[dict] = []
    for trace in traces:
        named = {"name": "process_name", "ph": "M", "pid": trace.rank}
        events.append(named | {"args": {"name": f"rank {trace.rank}"}})
        events.append({**named, "name": "process_sort_index", "args": {"sort_index": trace.rank}})
        for event in trace.events:
            if event.get("name") in ("process_name", "process_labels", "process_sort_index"):
                continue
            # All ranks number their arrows from 1, and the viewers tell them apart by id alone.
            own = {"id": (trace.rank << 32) + event["id"]} if event.get("ph") in FLOW else {}
            events.append(event | {"pid": trace.rank} | own)
    return events
