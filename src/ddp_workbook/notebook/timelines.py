"""`timeline` in a page: the table of `recording.timeline`, and its pictures."""

import os
from typing import Any

import numpy
import pandas as pd

from ddp_workbook import figures
from ddp_workbook.errors import WorkbookError
from ddp_workbook.figures.palette import INK
from ddp_workbook.recording import timeline as recording
from ddp_workbook.recording.traces import (
    PARTS,
    bounds,
    parts_of_steps,
    read_traces,
    spans_of_step,
    union,
    waits_of,
)

GAP = 0.004  # of a step: spans that are closer are drawn as one
LANES = {"": ("compute", "loading"), ", network": ("hidden", "exposed", "waiting")}


class Timeline(recording.Timeline):
    """What each rank did in each step: `parts` is the table, and these are its pictures."""

    @figures.drawn
    def bars(self) -> "figures.Picture":
        """A bar a rank: the parts of a step, as a mean over the steps."""
        table = self.parts.groupby("rank")[list(PARTS)].mean() * 1e3
        table.index = [f"rank {rank}" for rank in table.index]
        return figures.bars(table, "milliseconds of a step", "Where a step went")

    @figures.drawn
    def lanes(self, step: int = 1, last: int | None = None) -> "figures.Picture":
        """One step, or all up to `last`: what each rank computes, and below it what it sends.

        A thin line in a bar is where a call ends; a dashed one, where a step does. Raises
        WorkbookError for a step that is not in `parts`.
        """
        known, last = self.parts["step"].unique(), last or step
        for one in (step, last):
            if one not in known:
                raise WorkbookError(f"There is no step {one}: the timeline has 1 to {max(known)}.")
        rows, ends = [], {}
        of_ranks = [bounds(trace) for trace in self.traces]
        begun = min(steps[step - 1][0] for steps in of_ranks)
        for trace, waits, steps in zip(self.traces, waits_of(self.traces), of_ranks, strict=True):
            start, end = steps[step - 1][0], steps[last - 1][1]
            spans = spans_of_step(trace, waits, start, end)
            for lane, parts in LANES.items():
                rows += [
                    (f"rank {trace.rank}{lane}", part, *((one - begun) * 1e3 for one in span))
                    for part in parts
                    for span in joined(spans[part], GAP * (end - start))
                ]
            calls = trace.calls[(trace.calls[:, 1] > start) & (trace.calls[:, 1] < end), 1]
            ends[f"rank {trace.rank}, network"] = (calls - begun) * 1e3
        events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
        about = f"Step {step}" if last == step else f"Steps {step} to {last}"
        picture = figures.lanes(events, "milliseconds", f"{about} of each rank")
        for row, lane in enumerate(events["lane"].unique()):
            picture.axes.vlines(ends.get(lane, []), row - 0.4, row + 0.4, color="white", lw=1)
        for one in range(step, last):
            over = (max(steps[one - 1][1] for steps in of_ranks) - begun) * 1e3
            picture.axes.axvline(over, color=INK, linestyle="dashed", linewidth=1)
        return picture


def joined(spans: Any, gap: float) -> Any:
    """The spans without gaps as short as this."""
    more = numpy.array([0, gap])
    return union(spans + more) - more


def timeline(*args: Any, **kwargs: Any) -> Timeline:
    found = recording.timeline(*args, **kwargs)
    return Timeline(found.traces, found.parts, found.results)


def timeline_of_files(*paths: str | os.PathLike) -> Timeline:
    """The timeline of traces that torch.profiler has written anywhere, a file a rank.

    As `export_chrome_trace` writes them, also compressed (.gz). All ranks are put on one clock.
    Raises WorkbookError, naming the file, for what is no such trace.
    """
    traces = read_traces(paths)
    return Timeline(traces, parts_of_steps(traces))


timeline.__doc__ = recording.timeline.__doc__
