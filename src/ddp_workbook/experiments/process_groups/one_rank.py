"""What one rank does alone: who has to wait for it, and for how long."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.process_groups import train
from manyranks import figures
from manyranks.files import temporary_folder
from manyranks.launcher.launch import launch

COMPUTES, REDUCES = "computes (a sleep)", "in the all-reduce"
WRITES = "writes an event (a sleep)"
Span = tuple[str, float, float]  # one of these; start and end in milliseconds


def new_folder() -> Path:
    """A folder of this kernel alone; it is removed when the kernel ends."""
    return Path(tempfile.mkdtemp(dir=temporary_folder()))


def write_and_read(folder: Path, barrier: bool) -> str:
    """Rank 0 writes a file in `folder`, and every rank reads it; what this rank has found."""
    setup()
    settings = folder / "settings.txt"
    if dist.get_rank() == 0:
        time.sleep(0.3)  # plays a slow disk
        settings.write_text("learning rate 0.05")
    if barrier:
        dist.barrier()  # every rank comes here: after the write, and before the read
    text = settings.read_text() if settings.exists() else "no file"
    cleanup()
    return text


def read_with_and_without_barrier() -> pd.DataFrame:
    """What each of two ranks finds, without a barrier and with one."""
    results = {
        words: launch(write_and_read, new_folder(), barrier, ranks=2)
        for words, barrier in {"without a barrier": False, "with a barrier": True}.items()
    }
    return pd.DataFrame(results).rename_axis("rank").reset_index()


def folder_of_the_run(parent: Path) -> str:
    """Make a folder whose name is the time in nanoseconds, as every rank would do it for itself."""
    folder = parent / str(time.time_ns())
    folder.mkdir(exist_ok=True)  # once in a while two clocks agree
    return folder.name


def train_and_write(path: Path) -> None:
    """Train for one epoch; rank 0 then writes an event for each step to `path`, a line of JSON."""
    losses = train(epochs=1).losses  # of the whole batch, the same on all ranks
    if os.environ["RANK"] == "0":
        with path.open("w") as file:
            for step, loss in enumerate(losses):
                print(json.dumps({"step": step, "name": "loss", "value": loss}), file=file)


def loss_curve(path: Path) -> pd.Series:
    """The loss of each step, from the events in a file."""
    events = pd.read_json(path, lines=True)
    return events[events["name"] == "loss"].set_index("step")["value"].rename("loss")


@figures.house_style
def loss_plot(path: Path) -> figures.Picture:
    """The loss over the steps, read from the file."""
    about = "Loss over the steps, read from the file"
    return figures.lines(loss_curve(path).to_frame(), "loss", about)


def lane_with_events(steps: int) -> list[tuple[str, float, float]]:
    """What this rank did, in `steps` steps: (what, start, end) in seconds of a shared clock."""
    x = torch.zeros(4_810, device=setup())
    spans = []

    def record(what: str, call: Callable[[], object]) -> None:
        start = time.monotonic()  # all processes of a machine share it
        call()
        spans.append((what, start, time.monotonic()))

    dist.barrier()
    for _ in range(steps):
        record(COMPUTES, lambda: time.sleep(0.005))  # a sleep needs no core of a busy machine
        record(REDUCES, lambda: dist.all_reduce(x))
        if dist.get_rank() == 0:
            record(WRITES, lambda: time.sleep(0.005))
    cleanup()
    return spans


def lanes_with_events(steps: int = 4) -> list[list[tuple[str, float, float]]]:
    """The same of two ranks; times are milliseconds since the first began."""
    lanes = launch(lane_with_events, steps, ranks=2)
    zero = min(lane[0][1] for lane in lanes)
    return [
        [(what, 1e3 * (start - zero), 1e3 * (end - zero)) for what, start, end in lane]
        for lane in lanes
    ]


@figures.house_style
def lanes_plot(lanes: Sequence[Sequence[Span]]) -> figures.Picture:
    """A lane for each rank: its computing, its all-reduces and its writing; in milliseconds."""
    rows = [(f"rank {rank}", *span) for rank, spans in enumerate(lanes) for span in spans]
    events = pd.DataFrame(rows, columns=["lane", "what", "start", "end"])
    unit, about = "milliseconds since the first rank began", "A lane for each rank"
    picture = figures.lanes(events, unit, about, by="rank", tinted=[COMPUTES], pale=[REDUCES])
    totals = (events["end"] - events["start"]).groupby([events["lane"], events["what"]]).sum()
    for lane, times in totals.unstack(fill_value=0).iterrows():
        picture.alt += f" {lane} waits in its all-reduces for {times[REDUCES]:.0f} ms altogether."
    return picture
