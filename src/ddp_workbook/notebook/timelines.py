"""`timeline` in a page: the table of `recording.timeline`, and its pictures."""

from typing import Any

import numpy
import pandas as pd

from ddp_workbook import figures
from ddp_workbook.errors import WorkbookError
from ddp_workbook.recording import timeline as recording
from ddp_workbook.recording.traces import PARTS, bounds, spans_of_step, union, waits_of

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
    def lanes(self, step: int = 1) -> "figures.Picture":
        """One step: what each rank computes, and below it what it sends meanwhile.

        Raises WorkbookError for a step that is not in `parts`.
        """
        if step not in (known := self.parts["step"].unique()):
            raise WorkbookError(f"There is no step {step}: the timeline has 1 to {max(known)}.")
        rows = []
        begun = min(bounds(trace)[step - 1][0] for trace in self.traces)
        for trace, waits in zip(self.traces, waits_of(self.traces), strict=True):
            start, end = bounds(trace)[step - 1]
            spans = spans_of_step(trace, waits, start, end)
            for lane, parts in LANES.items():
                rows += [
                    (f"rank {trace.rank}{lane}", part, *((one - begun) * 1e3 for one in span))
                    for part in parts
                    for span in joined(spans[part], GAP * (end - start))
                ]
        events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
        return figures.lanes(events, "milliseconds", f"Step {step} of each rank")


def joined(spans: Any, gap: float) -> Any:
    """The spans without gaps as short as this."""
    more = numpy.array([0, gap])
    return union(spans + more) - more


def timeline(*args: Any, **kwargs: Any) -> Timeline:
    found = recording.timeline(*args, **kwargs)
    return Timeline(found.traces, found.parts, found.results)


timeline.__doc__ = recording.timeline.__doc__
