"""An all-reduce on a slow network, in line with other work and behind it.

Between processes of one machine an all-reduce is work for the processor, so little of it can be
hidden behind other work; hence the network that is ordered.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from manyranks import figures
from manyranks.launcher.launch import launch
from manyranks.launcher.process_group import set_up

Span = tuple[str, float, float]  # what was done, its start and end in seconds

NETWORK = "1 Gbit/s, 0.5 ms"
NUMBERS, WORK = 10**6, 0.04  # float32 in a message, 33 ms between 2 ranks; seconds of work


class SpanRecorder:
    """Records what was done from when to when, in seconds since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.spans: list[Span] = []

    def span(self, what: str, action: Callable[[], object]) -> None:
        start = time.perf_counter() - self.start
        action()
        self.spans.append((what, start, time.perf_counter() - self.start))


def sequential(tensor: Tensor, clock: SpanRecorder) -> None:
    """Wait for the sum, then work."""
    work = dist.all_reduce(tensor, async_op=True)
    clock.span("waits", work.wait)
    clock.span("works", lambda: work_for(WORK))


def overlapped(tensor: Tensor, clock: SpanRecorder) -> None:
    """Start the all-reduce, work, then wait for what is left of it."""
    work = dist.all_reduce(tensor, async_op=True)
    clock.span("works", lambda: work_for(WORK))
    clock.span("waits", work.wait)


def both_ways() -> dict[str, Sequence[list[Span]]]:
    """For each way and rank its spans, from the repeat that was over first on all ranks."""
    of_ranks = launch(spans_of_both, ranks=2, network=NETWORK)
    return {
        way: min(zip(*(spans[way] for spans in of_ranks), strict=True), key=_last_end)
        for way in of_ranks[0]
    }


def spans_of_both(repeats: int = 5) -> dict[str, list[list[Span]]]:
    """In a rank: the spans of each repeat of both ways, in seconds since all ranks were ready."""
    tensor = torch.ones(NUMBERS, device=set_up(bare=False))
    spans: dict[str, list] = {"in line": [], "overlapped": []}
    for _ in range(repeats):
        for name, way in (("in line", sequential), ("overlapped", overlapped)):
            dist.barrier()
            way(tensor, clock := SpanRecorder())
            spans[name].append(clock.spans)
    return spans


def _last_end(of_ranks: Sequence[list[Span]]) -> float:
    return max(end for spans in of_ranks for _, _, end in spans)


def work_for(seconds: float) -> None:
    """Multiply matrices for so long."""
    end, matrix = time.perf_counter() + seconds, torch.ones(64, 64)
    while time.perf_counter() < end:
        matrix @ matrix


# The annotation is a string, or each rank would import matplotlib.
@figures.house_style
def overlap_plot(ways: Mapping[str, Sequence[list[Span]]]) -> "figures.Picture":
    """A panel a way, a bar a rank: full where it works, pale where it waits."""
    events = [
        (way, f"rank {rank}", what, start * 1e3, end * 1e3)
        for way, of_ranks in ways.items()
        for rank, spans in enumerate(of_ranks)
        for what, start, end in spans
    ]
    table = pd.DataFrame(events, columns=["panel", "lane", "what", "start", "end"])
    return figures.lanes(table, "milliseconds", "Work and waiting", by="rank", pale=["waits"])
