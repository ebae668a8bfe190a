"""Chapter 05: when ranks come to a collective, when they leave it, and what they see too early."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from manyranks import figures
from manyranks.figures.palette import INK, tint
from manyranks.launcher.launch import launch
from manyranks.launcher.process_group import set_up
from manyranks.rank_colours import contrast, rank_colour

LATE_RANK, DELAY = 1, 0.06  # the rank that comes late, and by how many seconds
BAR, PALE = 0.62, 0.3  # of a lane; of the colour of a rank that waits
CallTimes = tuple[float, float, float]  # all ready, this rank came, this rank left; seconds
CALLS = {
    "barrier": lambda tensor: dist.barrier(),
    "all_reduce": lambda tensor: dist.all_reduce(tensor),
    "broadcast": lambda tensor: dist.broadcast(tensor, src=0),
}


def call_times(call: str, repeats: int = 5) -> list[CallTimes]:
    """In a rank: for each repeat when all were ready, when this rank came to `call`, and left it.

    Seconds of time.monotonic, which all processes of a machine share. Rank LATE comes DELAY seconds
    late. To a broadcast it comes only after another rank has left it, so that no machine is too
    slow to show that.
    """
    tensor, store, times = torch.ones(4, device=set_up(bare=False)), _store(), []
    for repeat in range(repeats):
        dist.barrier()
        ready, late = time.monotonic(), dist.get_rank() == LATE_RANK
        if late:
            time.sleep(DELAY)
            if call == "broadcast":
                store.wait([f"left {repeat}"])
        arrival = time.monotonic()
        CALLS[call](tensor)
        times.append((ready, arrival, time.monotonic()))
        if not late:
            store.set(f"left {repeat}", "")
    return times


def arrival_and_exit_times(*calls: str) -> dict[str, list[tuple[float, float]]]:
    """For each call and each of four ranks: when it came and left, in seconds since all were ready.

    From the repeat that was over first on all ranks: other programs have disturbed it least.
    """
    times = {}
    for call in calls:
        of_ranks = launch(call_times, call, ranks=4)
        times[call] = min(map(_since_ready, zip(*of_ranks, strict=True)), key=_last_to_leave)
    return times


def read_before_wait() -> tuple[Tensor, list[Tensor]]:
    """In a rank: its numbers before an asynchronous all-reduce, just after its start, and after."""
    device = set_up(bare=False)
    mine = torch.arange(1.0, 5.0, device=device) * 10 ** dist.get_rank()
    dist.barrier()
    if dist.get_rank() == LATE_RANK:
        time.sleep(0.2)
    before = mine.clone()
    work = dist.all_reduce(mine, async_op=True)
    early = mine.clone()  # too early: the sum may be missing, there, or half made
    work.wait()
    return before, [early, mine]


def _since_ready(of_ranks: tuple[CallTimes, ...]) -> list[tuple[float, float]]:
    start = min(ready for ready, _, _ in of_ranks)
    return [(arrival - start, departure - start) for _, arrival, departure in of_ranks]


def _last_to_leave(of_ranks: list[tuple[float, float]]) -> float:
    return max(departure for _, departure in of_ranks)


def _store() -> dist.Store:
    return dist.distributed_c10d._get_default_store()


@figures.house_style
def waiting_plot(times: Mapping[str, Sequence[tuple[float, float]]]) -> figures.Picture:
    """A panel a collective, a bar a rank: pale from when it came until it left.

    `times` is what `arrival_and_exit_times` returns. A dashed line marks when the last rank came,
    and words beside its bar a rank that had left by then.
    """
    ranks = max(map(len, times.values()))
    figure = figures.Figure((figures.WIDTH, 1.25 + 0.42 * ranks), layout="constrained")
    panels = figure.subplots(1, len(times), sharex=True, sharey=True, squeeze=False)[0]
    longest = 1e3 * max(departure for of_ranks in times.values() for _, departure in of_ranks)
    words = []
    for axes, (call, of_ranks) in zip(panels, times.items(), strict=True):
        last = max(arrival for arrival, _ in of_ranks)
        axes.axvline(last * 1e3, color=INK, linestyle="dashed", linewidth=1.2)
        axes.text(last * 1e3 - longest / 60, -0.6, "last rank arrives", ha="right", size=9.5)
        early = []
        for rank, (arrival, departure) in enumerate(of_ranks):
            start, end, colour = arrival * 1e3, departure * 1e3, rank_colour(rank)
            axes.barh(rank, start, BAR, color=colour)
            axes.barh(rank, end - start, BAR, left=start, color=tint(colour, PALE))
            if departure < last:
                early.append(str(rank))
                mark = {"va": "center", "weight": "bold", "size": 10}
                axes.text(end + longest / 40, rank, f"left after {end:.1f} ms", **mark)
            _name_bar(axes, rank, start, end, longest)
        axes.set(title=call, xlabel="milliseconds", xlim=(0, 1.04 * longest))
        figures.label_rows(axes, [f"rank {rank}" for rank in range(ranks)])
        axes.set_ylim(ranks - 0.5, -1.15)
        who = f"rank {', '.join(early)} had left" if early else "no rank left"
        spans = "; ".join(
            f"rank {rank}: inside from {figures.number(arrival * 1e3)} to "
            f"{figures.number(departure * 1e3)}"
            for rank, (arrival, departure) in enumerate(of_ranks)
        )
        words.append(f"{call}: {spans}; {who} before the last one had arrived.")
    alt = f"When each rank is inside a collective, milliseconds. {' '.join(words)}"
    return figures.Picture(figure, alt)


def _name_bar(axes: figures.Axes, rank: int, start: float, end: float, longest: float) -> None:
    """Say in a bar that is long enough what the rank does there."""
    text = {"va": "center", "ha": "center", "size": 9.5}
    if start > longest / 3:
        ink = max((INK, "#ffffff"), key=lambda one: contrast(one, rank_colour(rank)))
        axes.text(start / 2, rank, "not there yet", color=ink, **text)
    if end - start > longest / 3:
        axes.text((start + end) / 2, rank, "waits inside", **text)
