"""Traces of torch.profiler, one a rank: where each step of each rank went, on one clock.

The terms are those of Holistic Trace Analysis (Meta, 2022), which reads traces of GPUs alone. On a
GPU, computing and communication are kernels; on the CPU they are the `aten::` spans of PyTorch's
operators and the `gloo:` spans of gloo's threads. Communication is **exposed** while nothing is
computed.
"""

import gzip
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pandas as pd

from manyranks.errors import WorkbookError

MAX_TRACE_BYTES = (
    400 * 2**20
)  # bytes of a trace's file; reading it takes some ten times as much memory
STEPS = ("ProfilerStep#", "Optimizer.step#")  # the first of them that a trace has
LOADER = re.compile(r"enumerate\(DataLoader\)#|dataloader\.__next__|DataPipe#", re.I)
GLOO = re.compile(r"(?:gloo|network):(\w+)")
NCCL = re.compile(r"nccl\w*Kernel_(\w+?)_|ncclDevKernel_(\w+?)[_(]|nccl:(\w+)")
PARTS = ("compute", "loading", "exposed", "waiting", "other")
Spans = numpy.ndarray  # a row a span: start and end in seconds, by start


@dataclass
class Trace:
    """One rank's spans, in seconds since the Epoch, and the calls that communicate, in order.

    `communication` is their union, and that of what gloo does for them if the network is emulated.
    """

    rank: int
    compute: Spans
    loading: Spans
    communication: Spans
    calls: Spans
    ops: list[str]  # of `calls`
    steps: Spans
    host: str = ""
    events: list[dict] = field(default_factory=list, repr=False)


def read_traces(paths: Iterable[str | os.PathLike]) -> list[Trace]:
    """The traces in these files, one a rank, in the order of the ranks.

    As torch.profiler's `export_chrome_trace` writes them, also compressed (.gz). Raises
    WorkbookError, naming the file, for what is no such trace, too large, or of a rank twice.
    """
    traces = sorted((read_trace(Path(path)) for path in paths), key=lambda trace: trace.rank)
    ranks = [trace.rank for trace in traces]
    if not traces:
        raise WorkbookError("There is no trace. Name a file of each rank.")
    if duplicates := [str(rank) for rank in dict.fromkeys(ranks) if ranks.count(rank) > 1]:
        raise WorkbookError(
            f"Rank {', '.join(duplicates)} has several traces. Take one of each rank, of one run."
        )
    return on_one_clock(traces)


def read_trace(path: Path) -> Trace:
    """The trace in one file."""
    try:
        size = path.stat().st_size
        if size > MAX_TRACE_BYTES:
            raise WorkbookError(
                f"{path.name} has {size / 2**20:.0f} MiB; {MAX_TRACE_BYTES >> 20} MiB are read at "
                "most. Profile fewer steps: a handful tells as much."
            )
        opener: Any = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            content = json.load(file)
        events = content["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkbookError(
            f"{path} is no trace of torch.profiler: {type(error).__name__}. "
            "`export_chrome_trace` writes one when the profiler has stopped."
        ) from error
    info = content.get("distributedInfo") or {}
    if "rank" not in info:
        raise WorkbookError(
            f"{path} does not say of which rank it is. "
            "Start the profiler after `init_process_group`."
        )
    base = content.get("baseTimeNanoseconds", 0) / 1e9
    return trace_of(info["rank"], events, base, content.get("host_name", ""))


def trace_of(rank: int, events: list[dict], base: float = 0.0, host: str = "") -> Trace:
    """The spans of interest of a trace's events, whose times are microseconds after `base`."""
    spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
    kernels = [event for event in spans if event.get("cat") == "kernel"]
    loading = [event for event in spans if LOADER.match(event["name"])]
    if kernels:
        calls = communication = [event for event in kernels if NCCL.match(event["name"])]
        compute = [event for event in kernels if not NCCL.match(event["name"])]
    else:
        communication = [event for event in spans if GLOO.match(event["name"])]
        emulated = [event for event in communication if event["name"].startswith("network:")]
        calls = emulated or communication
        compute = [event for event in spans if event["name"].startswith("aten::")]
    calls.sort(key=lambda event: event["ts"])
    steps: list[dict] = []
    for mark in STEPS:  # on a GPU, each is there twice: as a span of its kernels, too
        steps = steps or [
            event
            for event in spans
            if event["name"].startswith(mark) and event.get("cat") != "gpu_user_annotation"
        ]
    return Trace(
        rank,
        union(seconds(compute, base)),
        union(seconds(loading, base)),
        union(seconds(communication, base)),
        seconds(calls, base),
        [op_of(event["name"]) for event in calls],
        seconds(steps, base),
        host,
        events,
    )


def op_of(name: str) -> str:
    """The kind of call of a span of gloo or a kernel of NCCL, in lower case."""
    match = GLOO.match(name) or NCCL.match(name)
    return next(filter(None, match.groups()), "").lower() if match else ""


def seconds(events: list[dict], base: float) -> Spans:
    """Start and end of each event, by start."""
    rows = sorted((event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in events)
    return numpy.array(rows, dtype=float).reshape(-1, 2) + base


def on_one_clock(traces: list[Trace]) -> list[Trace]:
    """Shift the traces of other hosts than the first rank's, so that their calls end together.

    Hosts have clocks of their own. A call of all ranks ends on all of them at nearly the same time,
    so the median difference of the ends is the difference of the clocks.
    """
    first = traces[0]
    for trace in traces[1:]:
        if trace.host == first.host or trace.ops != first.ops or not trace.ops:
            continue
        clock_offset = float(numpy.median(trace.calls[:, 1] - first.calls[:, 1]))
        parts = (trace.compute, trace.loading, trace.communication, trace.calls, trace.steps)
        for spans in parts:
            spans -= clock_offset
        for event in trace.events:
            if "ts" in event:
                event["ts"] -= clock_offset * 1e6
    return traces


def parts_of_steps(traces: Sequence[Trace]) -> pd.DataFrame:
    """Where each step of each rank went, in seconds, a row a step and rank.

    A step ends where one of `profiler.step()` ends, or else the optimizer's, and begins where the
    one before ended; a trace without either is one step. Columns: step, rank, `seconds`, and its
    parts, which add up to it: `compute`; `loading` data, where nothing is computed; `exposed`
    communication, while neither is; of that, `waiting` for the last rank to enter the call is a
    part of its own, and `exposed` is the rest; `other` is all else, such as Python's own time. Then
    `communication`, also where it is hidden, and `hidden`, its share that is. Raises WorkbookError
    if there is nothing in them.
    """
    rows = []
    for trace, waits in zip(traces, waits_of(traces), strict=True):
        for step, (start, end) in enumerate(bounds(trace), start=1):
            spans = spans_of_step(trace, waits, start, end)
            row = {"step": step, "rank": trace.rank, "seconds": end - start}
            row |= {part: length(spans[part]) for part in PARTS[:-1]}
            row["other"] = row["seconds"] - sum(row[part] for part in PARTS[:-1])
            row["communication"] = length(clip(trace.communication, start, end))
            exposed = row["exposed"] + row["waiting"]
            row["hidden"] = 1 - exposed / row["communication"] if row["communication"] else math.nan
            rows.append(row)
    if not rows:
        raise WorkbookError("The traces hold no operator and no step: was anything computed?")
    return pd.DataFrame(rows).sort_values(["step", "rank"], ignore_index=True)


def spans_of_step(trace: Trace, waits: Spans, start: float, end: float) -> dict[str, Spans]:
    """The spans of each of PARTS but `other`, and of `hidden` communication, between two times."""
    compute = clip(trace.compute, start, end)
    loading = difference(clip(trace.loading, start, end), compute)
    calls = clip(trace.communication, start, end)
    alone = difference(difference(calls, compute), loading)
    waiting = intersection(alone, waits)
    return {
        "compute": compute,
        "loading": loading,
        "exposed": difference(alone, waiting),
        "waiting": waiting,
        "hidden": difference(calls, alone),
    }


def waits_of(traces: Sequence[Trace]) -> list[Spans]:
    """For each trace the times from entering a call until the last rank entered it, too.

    None where the ranks made other calls, as in groups of their own: which belong together is not
    known.
    """
    if len({tuple(trace.ops) for trace in traces}) > 1:
        return [numpy.empty((0, 2)) for _ in traces]
    last = numpy.max([trace.calls[:, 0] for trace in traces], axis=0)
    return [union(numpy.column_stack([trace.calls[:, 0], last])) for trace in traces]


def bounds(trace: Trace) -> list[tuple[float, float]]:
    """Start and end of each step after the first, which is longer than the others."""
    ends = trace.steps[:, 1]
    if len(ends) > 1:
        return list(itertools.pairwise(ends))
    every = numpy.concatenate([trace.compute, trace.loading, trace.communication])
    return [(every[:, 0].min(), every[:, 1].max())] if len(every) else []


# Spans


def union(spans: Spans) -> Spans:
    """The same time without overlaps."""
    joined: list[list[float]] = []
    for start, end in spans[numpy.argsort(spans[:, 0], kind="stable")] if len(spans) else []:
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return numpy.array(joined, dtype=float).reshape(-1, 2)


def clip(spans: Spans, start: float, end: float) -> Spans:
    """The part of these spans that lies between the two times."""
    cut = numpy.clip(spans, start, end)
    return cut[cut[:, 1] > cut[:, 0]]


def difference(spans: Spans, others: Spans) -> Spans:
    """The part of `spans` in which no other is; both without overlaps of their own."""
    pieces = []
    for start, end in spans:
        for other_start, other_end in clip(others, start, end):
            pieces.append((start, other_start))
            start = other_end
        pieces.append((start, end))
    cut = numpy.array(pieces, dtype=float).reshape(-1, 2)
    return cut[cut[:, 1] > cut[:, 0]]


def intersection(spans: Spans, others: Spans) -> Spans:
    """The part of `spans` in which others are, too."""
    return difference(spans, difference(spans, others))


def length(spans: Spans) -> float:
    """Seconds of all of them."""
    return float((spans[:, 1] - spans[:, 0]).sum())
