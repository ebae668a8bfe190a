"""What one rank does alone: who has to wait for it, and for how long."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.process_groups import train
from ddp_workbook.files import temporary_folder
from ddp_workbook.launcher.launch import launch


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


def loss_curve(path: Path) -> pd.DataFrame:
    """The events in a file, as `loss_plot` takes them."""
    events = pd.read_json(path, lines=True)
    return events.rename(columns={"name": "candidate", "value": "loss"})


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
