"""Run a worker, and see on one clock what each rank did in each step."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pandas as pd

from manyranks import figures
from manyranks.errors import LaunchRefused, WorkbookError
from manyranks.figures.palette import INK
from manyranks.files import write_atomically
from manyranks.launcher.calls import Call, call_of
from manyranks.launcher.launch import run_ranks
from manyranks.network.links import Network
from manyranks.recording.profiled_worker import ProfiledWorker
from manyranks.recording.traces import (
    PARTS,
    Trace,
    bounds,
    parts_of_steps,
    read_traces,
    spans_of_step,
    union,
    waits_of,
)

FLOW = ("s", "t", "f")  # start, step and end of an arrow, as from forward to its backward
MIN_LAG = 0.1  # of a step: a rank is late if the others wait so long for it, or longer
GAP = 0.004  # of a step: spans that are closer are drawn as one
LANES = {"": ("compute", "loading"), ", network": ("hidden", "exposed", "waiting")}
CAUSES = {"compute": "its computing", "loading": "its loader", "other": "its Python code"}


@dataclass(frozen=True)
class Straggler:
    """A rank for which the others wait, in `steps` of `of` steps; `cause` is a column of parts."""

    rank: int
    steps: int
    of: int
    cause: str


@dataclass
class Timeline:
    """What each rank did: `parts`, a row a step and rank, and pictures of them.

    See `parts_of_steps` for its columns.
    """

    traces: Sequence[Trace]
    parts: pd.DataFrame
    results: Sequence[Any] = ()

    def save(self, path: str | os.PathLike) -> Path:
        """Write all ranks into one file that Perfetto (ui.perfetto.dev) opens; a process a rank."""
        path = Path(path)
        write_atomically(path, json.dumps({"traceEvents": merge_events(self.traces)}))
        return path

    def straggler(self) -> Straggler | None:
        """The rank for which the others wait most often, if they do in any step."""
        late_ranks = []
        for _, step in self.parts.groupby("step"):
            first = step.loc[step["waiting"].idxmin()]
            others = step[step["rank"] != first["rank"]]
            lag = others["waiting"].min() - first["waiting"]  # nan for a rank alone
            if lag > MIN_LAG * step["seconds"].max():
                excess = {cause: first[cause] - others[cause].median() for cause in CAUSES}
                late_ranks.append(
                    (int(first["rank"]), max(excess, key=lambda cause: excess[cause]))
                )
        if not late_ranks:
            return None
        ranks = [rank for rank, _ in late_ranks]
        most = max(set(ranks), key=ranks.count)
        causes = [cause for rank, cause in late_ranks if rank == most]
        steps = self.parts["step"].nunique()
        return Straggler(most, len(causes), steps, max(set(causes), key=causes.count))

    def describe(self) -> str:
        """The share of exposed communication in a step, and who is late."""
        mean = self.parts.mean(numeric_only=True)
        exposed = f"{mean['exposed'] / mean['seconds']:.0%} of a step is exposed communication"
        if not (late := self.straggler()):
            return f"{exposed}; no rank is late."
        of = f"{late.steps} of {late.of} steps"
        return f"{exposed}; rank {late.rank} is late in {of} ({CAUSES[late.cause]})."

    __repr__ = describe

    @figures.house_style
    def bars(self) -> "figures.Picture":
        """A bar a rank: the parts of a step, as a mean over the steps."""
        table = self.parts.groupby("rank")[list(PARTS)].mean() * 1e3
        table.index = [f"rank {rank}" for rank in table.index]
        return figures.bars(table, "milliseconds of a step", "Where a step went")

    @figures.house_style
    def lanes(self, step: int = 1, last: int | None = None) -> "figures.Picture":
        """One step, or all up to `last`: what each rank computes, and below it what it sends.

        A thin line in a bar is where a call ends; a dashed one, where a step does. Raises
        WorkbookError for a step that is not in `parts`.
        """
        known, last = self.parts["step"].unique(), last or step
        for number in (step, last):
            if number not in known:
                raise WorkbookError(
                    f"There is no step {number}: the timeline has 1 to {max(known)}."
                )
        rows, ends = [], {}
        of_ranks = [bounds(trace) for trace in self.traces]
        origin = min(steps[step - 1][0] for steps in of_ranks)
        for trace, waits, steps in zip(self.traces, waits_of(self.traces), of_ranks, strict=True):
            start, end = steps[step - 1][0], steps[last - 1][1]
            spans = spans_of_step(trace, waits, start, end)
            for lane, parts in LANES.items():
                rows += [
                    (f"rank {trace.rank}{lane}", part, *((time - origin) * 1e3 for time in span))
                    for part in parts
                    for span in joined(spans[part], GAP * (end - start))
                ]
            calls = trace.calls[(trace.calls[:, 1] > start) & (trace.calls[:, 1] < end), 1]
            ends[f"rank {trace.rank}, network"] = (calls - origin) * 1e3
        events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
        about = f"Step {step}" if last == step else f"Steps {step} to {last}"
        picture = figures.lanes(events, "milliseconds", f"{about} of each rank")
        for row, lane in enumerate(events["lane"].unique()):
            picture.axes.vlines(ends.get(lane, []), row - 0.4, row + 0.4, color="white", lw=1)
        for number in range(step, last):
            end = (max(steps[number - 1][1] for steps in of_ranks) - origin) * 1e3
            picture.axes.axvline(end, color=INK, linestyle="dashed", linewidth=1)
        return picture


def timeline(
    worker: Callable | str | os.PathLike,
    *args: Any,
    ranks: int = 2,
    steps: int = 5,
    timeout: float = 60,
    network: str | Network | None = None,
    as_if_gpus: bool = True,
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
        profiled = ProfiledWorker(call.worker, Path(folder), steps)
        results = run_ranks(
            Call(profiled, call.args, call.kwargs),
            ranks,
            timeout,
            quiet=True,
            network=network,
            as_if_gpus=as_if_gpus,
        )
        return timeline_of(read_traces(Path(folder).glob("*.json")), results)


def timeline_of(traces: Sequence[Trace], results: Sequence[Any] = ()) -> Timeline:
    """The timeline of traces that `read_traces` has read, such as a reader's own."""
    return Timeline(traces, parts_of_steps(traces), results)


def timeline_of_files(*paths: str | os.PathLike) -> Timeline:
    """The timeline of traces that torch.profiler has written anywhere, a file a rank.

    As `export_chrome_trace` writes them, also compressed (.gz). All ranks are put on one clock.
    Raises WorkbookError, naming the file, for what is no such trace.
    """
    return timeline_of(read_traces(paths))


def joined(spans: Any, gap: float) -> Any:
    """The spans without gaps as short as this."""
    more = numpy.array([0, gap])
    return union(spans + more) - more


def merge_events(traces: Sequence[Trace]) -> list[dict]:
    """The events of all ranks, a process each."""
    events: list[dict] = []
    for trace in traces:
        metadata = {"name": "process_name", "ph": "M", "pid": trace.rank}
        events.append(metadata | {"args": {"name": f"rank {trace.rank}"}})
        events.append(
            {**metadata, "name": "process_sort_index", "args": {"sort_index": trace.rank}}
        )
        for event in trace.events:
            if event.get("name") in ("process_name", "process_labels", "process_sort_index"):
                continue
            # All ranks number their arrows from 1, and the viewers tell them apart by id alone.
            own = {"id": (trace.rank << 32) + event["id"]} if event.get("ph") in FLOW else {}
            events.append(event | {"pid": trace.rank} | own)
    return events
