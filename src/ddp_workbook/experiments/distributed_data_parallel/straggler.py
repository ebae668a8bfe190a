"""Who waits for whom: one rank is late in one part of its program, and every rank has a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP
from ddp_workbook.chapters.distributed_data_parallel import setup
from manyranks import figures
from manyranks.recording.timing import synchronise

DELAY_MS = 50  # milliseconds
STEPS = 4
NOTHING, ASLEEP, MIN_AXIS_MS = "nothing", "sleeps", 250  # ms that the axis has at least
PARTS = ("constructor", "forward", "backward", "step")


class Part(NamedTuple):
    """A part of a rank's program; start and end in milliseconds since all ranks were ready."""

    name: str
    start: float
    end: float


def play_straggler() -> ddp_workbook.Play:
    """Four steps of three ranks, with controls for who is late, in which part, by how much."""
    return ddp_workbook.play(
        run_steps,
        timeline_plot,
        ranks=3,
        stills=[
            {"late": NOTHING},
            {"late": "constructor"},
            {"late": "step"},
            {"who": 0},
            {"late": "backward", "by": 100},
        ],
        who=ddp_workbook.slider("the straggler: rank", range(3), 1),
        late=ddp_workbook.choice("is late in", (NOTHING, *PARTS), "forward"),
        by=ddp_workbook.slider("by, ms", (10, 20, DELAY_MS, 100), DELAY_MS),
    )


def run_steps(late: str = NOTHING, who: int = 1, by: float = DELAY_MS) -> list[Part]:
    """Constructor, then forward, backward and step in turns.

    Rank `who` sleeps for `by` milliseconds in each part called `late`.
    """
    device = setup()
    images, model = DigitsDataset().images[:64].to(device), DigitsMLP().to(device)
    sleeps, parts = dist.get_rank() == who, []
    dist.barrier()
    start_time = time.perf_counter()

    def record_part(name: str, work: Callable):
        start = time.perf_counter()
        if name == late and sleeps:
            time.sleep(by / 1e3)
            parts.append(
                Part(ASLEEP, 1e3 * (start - start_time), 1e3 * (time.perf_counter() - start_time))
            )
            start = time.perf_counter()
        result = work()
        synchronise()
        parts.append(
            Part(name, 1e3 * (start - start_time), 1e3 * (time.perf_counter() - start_time))
        )
        return result

    ddp = record_part("constructor", lambda: DistributedDataParallel(model))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for _ in range(STEPS):
        loss = record_part("forward", lambda: ddp(images).logsumexp(dim=1).mean())
        record_part("backward", loss.backward)
        record_part("step", optimizer.step)
        optimizer.zero_grad()
    dist.barrier()
    return parts


def milliseconds_by_part(parts: Sequence[Part]) -> dict[str, float]:
    """Milliseconds in each kind of part, all of them together."""
    total: dict[str, float] = {}
    for name, start, end in parts:
        total[name] = total.get(name, 0.0) + end - start
    return total


@figures.house_style
def timeline_plot(
    of_ranks: Sequence[Sequence[Part]], who: int = 1, late: str = NOTHING, **_: object
) -> figures.Picture:
    """A lane a rank: the parts of its program; and in which one each rank lost most of its time."""
    rows = [(f"rank {rank}", *part) for rank, parts in enumerate(of_ranks) for part in parts]
    events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
    unit = "milliseconds since all were ready"
    picture = figures.lanes(events, unit, "Four steps of each rank")
    words = f"Rank {who} is late in {late}" if late != NOTHING else "No rank is late"
    for rank, parts in enumerate(of_ranks):
        if rank != who or late == NOTHING:
            times = milliseconds_by_part(parts)
            most = max(times, key=lambda name: times[name])
            words += f"\nrank {rank}: {times[most]:.0f} of {sum(times.values()):.0f} ms in {most}"
    picture.axes.set_title(words)
    picture.axes.set_xlim(0, max(MIN_AXIS_MS, picture.axes.get_xlim()[1]))
    picture.alt += f" {words}.".replace("\n", ". ")
    return picture
