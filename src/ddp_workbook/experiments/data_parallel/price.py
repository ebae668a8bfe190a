"""What a step of DataParallel costs beside computing, played with."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import torch

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.chapters import single_process
from ddp_workbook.experiments.data_parallel.step_times import Size, model_and_batch
from ddp_workbook.experiments.data_parallel.timeline import MAIN, watch_a_step
from ddp_workbook.recording.timing import time_step

DEPTH = 3
ALONE = "one process"
STEPS = 2  # of each; the fastest counts, since other programs only make a step longer


class Compared(NamedTuple):
    """The same batch twice: by DataParallel's stand-in, and by one process on all its cores."""

    events: pd.DataFrame  # of a step of the stand-in: lane, what, start and end in milliseconds
    alone: float  # milliseconds of one process's step


def play_a_step() -> ddp_workbook.Play:
    """One step on threads, and of one process, with controls for the model, batch and devices."""
    stills = [
        {"width": 64, "batch": 16},
        {"width": 768},
        {"width": 768, "devices": 4},
        {"batch": 1024},
        {"width": 768, "batch": 1024},
    ]
    return ddp_workbook.play(
        compared,
        side_by_side,
        ranks=1,
        stills=stills,
        width=ddp_workbook.slider("width of the model", (64, 256, 768), 256),
        batch=ddp_workbook.slider("rows in a batch", (16, 64, 256, 1024), 64),
        devices=ddp_workbook.slider("devices (threads play them)", (1, 2, 3, 4), 2),
    )


def compared(width: int, batch: int, devices: int) -> Compared:
    """The fastest of a few steps of each."""
    size, cpu = Size(width, DEPTH, batch), torch.device("cpu")
    events = watch_a_step(devices, size, tries=STEPS)
    model, images, labels = model_and_batch(size, cpu)

    def step() -> None:
        model.zero_grad()
        single_process.forward_and_backward(model, images, labels)

    return Compared(events, min(time_step(step, warm_up=1, repeats=STEPS, device=cpu)) * 1e3)


@figures.drawn
def side_by_side(of_ranks: list[Compared], **_: object) -> figures.Picture:
    """Lanes of the stand-in's threads, and of one process; the price of the copies in words."""
    events, alone = of_ranks[0]
    threads = sorted(lane for lane in events["lane"].unique() if lane != MAIN)
    whole, share = events["end"].max(), price(events)
    one = pd.DataFrame([(ALONE, "compute", 0.0, alone)], columns=events.columns)
    picture = figures.lanes(
        pd.concat([events, one]),
        "milliseconds since the step began (stand-in: CPU threads)",
        "One step of DataParallel, and of one process that uses all cores",
        order=[MAIN, *threads, ALONE],
    )
    sooner = "One process" if alone < whole else "DataParallel"
    words = (
        f"DataParallel: {figures.number(whole)} ms, of which copying and adding take {share:.0%}\n"
        f"One process: {figures.number(alone)} ms. {sooner} is done sooner"
    )
    picture.axes.set_title(words)
    picture.alt += f" {words}.".replace("\n", ". ")
    return picture


def price(events: pd.DataFrame) -> float:
    """The share of a step in which the main thread copies, cuts, adds up and gathers."""
    own = events[events["lane"] == MAIN]
    return float((own["end"] - own["start"]).sum() / events["end"].max())
