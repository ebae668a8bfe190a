"""A slow network that is not there: all-reduces that finish no sooner than it would allow.

Between processes of one machine an all-reduce is work for the processor, so little of it can be
hidden behind other work. Here gloo adds up as always, and a thread holds the result back until a
network of the given latency and bandwidth would have delivered it. There is one wire: messages
that are started together queue for it.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from ddp_workbook import figures
from ddp_workbook.launcher.launch import launch
from ddp_workbook.launcher.process_group import set_up

Span = tuple[str, float, float]  # what was done, its start and end in seconds

LATENCY, BANDWIDTH = 0.5e-3, 125e6  # seconds a message; bytes a second: 1 Gbit/s
NUMBERS, WORK = 10**6, 0.04  # float32 in a message, 32 ms between 2 ranks; seconds of work


class SlowWire:
    """One wire of `latency` seconds a message and `bandwidth` bytes a second, for this rank."""

    def __init__(self, latency: float = LATENCY, bandwidth: float = BANDWIDTH):
        self.latency, self.bandwidth = latency, bandwidth
        self.free_at = 0.0
        self.sent: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._deliver, daemon=True).start()

    def all_reduce(self, tensor: Tensor) -> Future[Tensor]:
        """Start an all-reduce; the future holds the tensor once the wire has delivered it.

        A ring sends 2 (N - 1) / N of the tensor's bytes from each rank.
        """
        ranks = dist.get_world_size()
        seconds = self.latency + 2 * (ranks - 1) / ranks * tensor.nbytes / self.bandwidth
        self.free_at = max(time.perf_counter(), self.free_at) + seconds
        future: Future = Future()
        self.sent.put((dist.all_reduce(tensor, async_op=True), self.free_at, future, tensor))
        return future

    def as_hook(self, ranks: int, bucket: dist.GradBucket) -> Future[Tensor]:
        """A communication hook of DDP: the mean of a bucket, sent over this wire."""
        return self.all_reduce(bucket.buffer()).then(lambda done: done.value().div_(ranks))

    def _deliver(self) -> None:
        while True:
            work, due, future, tensor = self.sent.get()
            work.wait()
            time.sleep(max(0.0, due - time.perf_counter()))
            future.set_result(tensor)


class Clock:
    """Records what was done from when to when, in seconds since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.spans: list[Span] = []

    def span(self, what: str, action: Callable[[], object]) -> None:
        begun = time.perf_counter() - self.start
        action()
        self.spans.append((what, begun, time.perf_counter() - self.start))


def in_line(wire: SlowWire, tensor: Tensor, clock: Clock) -> None:
    """Wait for the sum, then work."""
    future = wire.all_reduce(tensor)
    clock.span("waits", future.wait)
    clock.span("works", lambda: work_for(WORK))


def overlapped(wire: SlowWire, tensor: Tensor, clock: Clock) -> None:
    """Start the all-reduce, work, then wait for what is left of it."""
    future = wire.all_reduce(tensor)
    clock.span("works", lambda: work_for(WORK))
    clock.span("waits", future.wait)


def both_ways(ranks: int = 2, repeats: int = 5) -> dict[str, Sequence[list[Span]]]:
    """For each way and rank its spans, from the repeat that was over first on all ranks."""
    of_ranks = launch(spans_of_both, repeats, ranks=ranks)
    return {
        way: min(zip(*(one[way] for one in of_ranks), strict=True), key=_last_end)
        for way in of_ranks[0]
    }


def spans_of_both(repeats: int) -> dict[str, list[list[Span]]]:
    """In a rank: the spans of each repeat of both ways, in seconds since all ranks were ready."""
    tensor, wire = torch.ones(NUMBERS, device=set_up(bare=False)), SlowWire()
    found: dict[str, list] = {"in line": [], "overlapped": []}
    for _ in range(repeats):
        for name, way in (("in line", in_line), ("overlapped", overlapped)):
            dist.barrier()
            way(wire, tensor, clock := Clock())
            found[name].append(clock.spans)
    return found


def _last_end(of_ranks: Sequence[list[Span]]) -> float:
    return max(end for spans in of_ranks for _, _, end in spans)


def work_for(seconds: float) -> None:
    """Multiply matrices for so long."""
    end, matrix = time.perf_counter() + seconds, torch.ones(64, 64)
    while time.perf_counter() < end:
        matrix @ matrix


# The annotation is a string, or each rank would import matplotlib; a comm hook's must not be one.
@figures.drawn
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
