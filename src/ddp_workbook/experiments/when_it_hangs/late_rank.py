"""One rank is late: what each rank's waiting in the all_reduce at the end of a step shows."""

from __future__ import annotations

import time

import pandas as pd
import torch
import torch.distributed as dist

import ddp_workbook
from ddp_workbook.chapters.distributed_data_parallel import setup
from manyranks import figures

STEPS, COMPUTE_S, DELAY_S = (
    5,
    0.02,
    0.04,
)  # seconds of a step's computing, and by which a rank is late
LATE_STEPS = {"never": (), "in every step": range(STEPS), "in the first": (0,), "sometimes": (1, 3)}


def all_reduce_times(late: int, when: str) -> list[tuple[float, float]]:
    """For each step, when this rank entered the all_reduce and when it left it, in seconds."""
    device, times = setup(), []
    gradient = torch.ones(1000, device=device)
    dist.barrier()
    for step in range(STEPS):
        is_late = dist.get_rank() == late and step in LATE_STEPS[when]
        time.sleep(COMPUTE_S + DELAY_S * is_late)
        entry = time.monotonic()
        dist.all_reduce(gradient)
        times.append((entry, time.monotonic()))
    return times


def play_late() -> ddp_workbook.Play:
    """Controls for who is late, and in which steps."""
    return ddp_workbook.play(
        all_reduce_times,
        waiting_plot,
        ranks=4,
        stills=[{"when": when} for when in LATE_STEPS if when != "in every step"],
        late=ddp_workbook.slider("late rank", range(4), 2),
        when=ddp_workbook.choice("late", tuple(LATE_STEPS), "in every step"),
    )


@figures.house_style
def waiting_plot(of_ranks: list[list[tuple[float, float]]], **_: object) -> figures.Picture:
    """A lane a rank: when it waited for the others."""
    zero = min(times[0][0] for times in of_ranks) - COMPUTE_S
    events = [
        (f"rank {rank}", "waits in all_reduce", 1e3 * (entry - zero), 1e3 * (departure - zero))
        for rank, times in enumerate(of_ranks)
        for entry, departure in times
    ]
    table = pd.DataFrame(events, columns=["lane", "what", "start", "end"])
    waits = [sum(departure - entry for entry, departure in times) for times in of_ranks]
    least = min(range(len(waits)), key=waits.__getitem__)
    about = f"Rank {least} waits least, {1e3 * waits[least]:.0f} ms in {STEPS} steps"
    return figures.lanes(table, "ms", about, by="rank", pale=["waits in all_reduce"])
