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

from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.process_groups import train
from ddp_workbook.figures.palette import INK, tint
from ddp_workbook.files import temporary_folder
from ddp_workbook.launcher.launch import launch
from ddp_workbook.rank_colours import rank_colour

Span = tuple[str, float, float]  # compute, all-reduce or write; start and end in milliseconds
WORDS = {"compute": "computes", "all-reduce": "in the all-reduce", "write": "writes an event"}


def new_folder() -> Path:
    """A folder of this kernel alone; it is removed when the kernel ends."""
    return Path(tempfile.mkdtemp(dir=temporary_folder()))


def write_and_read(folder: Path, barrier: bool) -> str:
    """Rank 0 writes a file in `folder`, and every rank reads it; what this rank has found."""
    setup()
    settings = folder / "settings.txt"
    if dist.get_rank() == 0:
        time.sleep(0.1)  # plays a slow disk
        settings.write_text("learning rate 0.05")
    if barrier:
        dist.barrier()  # every rank comes here: after the write, and before the read
    found = settings.read_text() if settings.exists() else "no file"
    cleanup()
    return found


def read_with_and_without() -> pd.DataFrame:
    """What each of two ranks finds, without a barrier and with one."""
    found = {
        words: launch(write_and_read, new_folder(), barrier, ranks=2)
        for words, barrier in {"without a barrier": False, "with a barrier": True}.items()
    }
    return pd.DataFrame(found).rename_axis("rank").reset_index()


def folder_of_the_run(parent: Path) -> str:
    """Make a folder whose name holds the time, as every rank would do it for itself."""
    folder = parent / str(time.time_ns())
    folder.mkdir(exist_ok=True)  # once in a while two clocks agree
    return folder.name


def step_with_events(writes: bool, barrier: bool, steps: int = 20) -> float:
    """Milliseconds of a step on this rank, in which rank 0 may write, and all may meet after it."""
    x = torch.zeros(4_810, device=setup())
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        dist.all_reduce(x)  # plays the gradients
        x[0].item()  # a GPU runs behind Python: wait for it
        if writes and dist.get_rank() == 0:
            time.sleep(0.005)  # plays a slow disk
        if barrier:
            dist.barrier()
    seconds = time.perf_counter() - start
    cleanup()
    return 1e3 * seconds / steps


CASES = {
    "no event (ms)": (False, False),
    "event (ms)": (True, False),
    "event and barrier (ms)": (True, True),
}


def steps_with_events() -> pd.DataFrame:
    """Milliseconds of a step on each of two ranks, a column for each case."""
    found = {name: launch(step_with_events, *case, ranks=2) for name, case in CASES.items()}
    table = pd.DataFrame(found).map("{:.1f}".format)
    return table.rename_axis("rank").reset_index()


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


@figures.drawn
def loss_plot(path: Path) -> figures.Picture:
    """The loss over the steps, read from the file."""
    about = "Loss over the steps, read from the file"
    return figures.lines(loss_curve(path).to_frame(), "loss", about)


def lane_with_events(steps: int) -> list[tuple[str, float, float]]:
    """What this rank did, in `steps` steps: (what, start, end) in seconds of a shared clock."""
    x = torch.zeros(4_810, device=setup())
    spans = []

    def timed(what: str, call: Callable[[], object]) -> None:
        start = time.monotonic()  # all processes of a machine share it
        call()
        spans.append((what, start, time.monotonic()))

    dist.barrier()
    for _ in range(steps):
        timed("compute", lambda: time.sleep(0.005))  # a sleep needs no core of a busy machine
        timed("all-reduce", lambda: dist.all_reduce(x))
        if dist.get_rank() == 0:
            timed("write", lambda: time.sleep(0.005))
    cleanup()
    return spans


def lanes_with_events(steps: int = 4) -> list[list[tuple[str, float, float]]]:
    """The same of two ranks; times are milliseconds since the first began."""
    lanes = launch(lane_with_events, steps, ranks=2)
    began = min(lane[0][1] for lane in lanes)
    return [
        [(what, 1e3 * (start - began), 1e3 * (end - began)) for what, start, end in lane]
        for lane in lanes
    ]


@figures.drawn
def lanes_plot(lanes: Sequence[Sequence[Span]]) -> figures.Picture:
    """A lane for each rank: when it computed, was in an all-reduce, and wrote; in milliseconds."""
    events = [(f"rank {rank}", *span) for rank, spans in enumerate(lanes) for span in spans]
    table = pd.DataFrame(events, columns=["lane", "what", "start", "end"])
    keys = {words: _look(what, INK) for what, words in WORDS.items()}
    unit = "milliseconds since the first rank began"

    def look(event: dict) -> figures.Look:
        return _look(event["what"], rank_colour(int(event["lane"].removeprefix("rank "))))

    picture = figures.lanes(table, unit, "A lane for each rank", by=look, keys=keys)
    parts = []
    for rank, spans in enumerate(lanes):
        waits = [f"{end - start:.0f}" for what, start, end in spans if what == "all-reduce"]
        wrote = sum(end - start for what, start, end in spans if what == "write")
        words = f"it writes for {wrote:.0f} ms altogether" if wrote else "it writes nothing"
        parts.append(f"Rank {rank} is in its all-reduces for {', '.join(waits)} ms; {words}.")
    picture.alt = f"A lane for each rank, over time. {' '.join(parts)}"
    return picture


def _look(what: str, colour: str) -> figures.Look:
    fills: dict[str, figures.Look] = {
        "compute": {"facecolor": tint(colour, 0.3)},
        "all-reduce": {"facecolor": "white", "hatch": "////", "hatchcolor": colour},
        "write": {"facecolor": colour},
    }
    return fills[what] | {"edgecolor": colour, "linewidth": 1.2}
