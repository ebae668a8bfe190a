"""A step of the stand-in with a clock at each operation: in which thread, and at what price."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

import ddp_workbook
from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.chapters.digits import DigitsMLP
from ddp_workbook.experiments.data_parallel.one_step import cpu_devices
from ddp_workbook.experiments.data_parallel.step_times import Size, model_and_batch, recording_calls
from manyranks import figures
from manyranks.recording.timing import time_step

# Functions of data_parallel.py, and the part of a step that each of them is.
OPERATIONS = {
    "replicate": "replicate",
    "scatter": "scatter",
    "run_replica": "compute",
    "add_gradients": "add gradients",
    "gather": "gather",
}
LARGE = Size(width=512, depth=3, batch=1024)
MAIN = "main thread"
LABEL = 0.16  # of the axis: as long as a bar must be for its name


@figures.house_style
def step(devices: int = 2) -> figures.Picture:
    """One step of the stand-in: a lane for the main thread and for each replica's thread.

    The time in which only the main thread works is shaded.
    """
    events = record_step(devices)
    order = sorted(events["lane"].unique(), key=lambda name: (name != MAIN, name))
    picture = thread_lanes(events, "One step of DataParallel", order)
    first, last = parallel_part(events)
    for start, end in ((0, first), (last, events["end"].max())):
        picture.axes.axvspan(start, end, color="black", alpha=0.08, linewidth=0)
    picture.alt += (
        f" The main thread works alone until {first:.3g} ms, then waits while the other threads "
        f"run their replicas, and works alone again from {last:.3g} ms on."
    )
    return picture


def thread_lanes(events: pd.DataFrame, about: str, order: list[str]) -> figures.Picture:
    """A lane for each thread, in the colour of its device; a bar's name stands in it or beside it.

    What the main thread does is dark. Bars that are too short to be seen have no name.
    """
    devices = events["lane"].str.extract(r"thread (\d+)")[0].astype(float)
    unit = "milliseconds since the step began (stand-in: CPU threads)"
    picture = figures.lanes(
        events.assign(rank=devices),
        unit,
        about,
        order=order,
        by="rank",
        tinted={"compute"},
        keys={},
    )
    whole = events["end"].max()
    for event in events.to_dict("records"):
        row, what = order.index(event["lane"]), event["what"]
        if event["end"] - event["start"] > LABEL * whole:
            look = {"color": "white", "weight": "bold"} if what != "compute" else {}
            _name(picture, row, (event["start"] + event["end"]) / 2, what, **look)
        elif what == "replicate":
            _name(picture, row, event["end"] + whole / 100, what, ha="left")
        elif what == "add gradients":
            _name(picture, row, event["start"] - whole / 100, what, ha="right")
    _name(picture, order.index(MAIN), sum(parallel_part(events)) / 2, "waits", style="italic")
    return picture


def _name(picture: figures.Picture, row: int, place: float, words: str, **look: Any) -> None:
    picture.axes.text(place, row, words, **{"ha": "center", "va": "center", "size": 10} | look)


def parallel_part(events: pd.DataFrame) -> tuple[float, float]:
    """From when to when, in milliseconds, threads other than the main one work."""
    thread_events = events[events["lane"].str.startswith("thread")]
    return thread_events["start"].min(), thread_events["end"].max()


def record_step(devices: int = 2, size: Size = LARGE, tries: int = 4) -> pd.DataFrame:
    """The fastest of a few steps: lane, what, start and end (milliseconds) of each call.

    A lane is a thread, and `what` the part of the step.

    The first step is left out: it also pays for memory that later steps use again.
    """
    model, images, labels = model_and_batch(size, torch.device("cpu"))
    steps = [_step_events(model, images, labels, devices) for _ in range(1 + tries)][1:]
    return min(steps, key=lambda step: step["end"].max())


def _step_events(model: nn.Module, images: Tensor, labels: Tensor, devices: int) -> pd.DataFrame:
    cores = torch.get_num_threads()
    torch.set_num_threads(1)  # in each thread: one core plays one device
    try:
        with recording_calls(data_parallel, OPERATIONS) as events:
            data_parallel.forward_and_backward(model, images, labels, cpu_devices(devices))
    finally:
        torch.set_num_threads(cores)
    table = pd.DataFrame(events, columns=["lane", "what", "start", "end"])
    table[["start", "end"]] = (table[["start", "end"]] - table["start"].min()) * 1e3
    table = table.sort_values("start", ignore_index=True)
    return table.assign(lane=_lane_names(table["lane"]))


def _lane_names(of_calls: pd.Series) -> list[str]:
    """The calling thread, and the others numbered in the order in which they began."""
    here = threading.current_thread().name
    other_threads = [name for name in of_calls.unique() if name != here]
    names = {here: MAIN} | {name: f"thread {number}" for number, name in enumerate(other_threads)}
    return [names[name] for name in of_calls]


def call_recording_model() -> tuple[nn.Module, list[tuple[str, int]]]:
    """A model, and the list in which it notes the thread and the rows of every call.

    Threads other than the main one are numbered in the order in which they are first seen.
    """
    calls: list[tuple[str, int]] = []
    names = {threading.main_thread(): MAIN}
    lock = threading.Lock()  # else two threads could get the same number
    model = DigitsMLP()

    def note(_module, inputs, _outputs) -> None:
        with lock:
            name = names.setdefault(threading.current_thread(), f"thread {len(names) - 1}")
            calls.append((name, len(inputs[0])))

    model.register_forward_hook(note)
    return model, calls


# What a step costs beside computing, played with


DEPTH = 3
ALONE = "one process"
STEPS = (3, 20)  # at least and at most; the fastest counts: other programs make a step longer
STEPS_S = 0.6  # seconds after which at least is enough


class StepComparison(NamedTuple):
    """The same batch twice: by DataParallel's stand-in, and by one process on all its cores."""

    events: pd.DataFrame  # of a step of the stand-in: lane, what, start and end in milliseconds
    alone: float  # milliseconds of one process's step


def play_step() -> ddp_workbook.Play:
    """One step on threads, and of one process, with controls for the model, batch and devices."""
    stills = [
        {"width": 64, "batch": 16},
        {"width": 768},
        {"width": 768, "devices": 4},
        {"batch": 1024},
        {"width": 768, "batch": 1024},
    ]
    return ddp_workbook.play(
        compare_step,
        comparison_plot,
        ranks=1,
        stills=stills,
        width=ddp_workbook.slider("width of the model", (64, 256, 768), 256),
        batch=ddp_workbook.slider("samples in a batch", (16, 64, 256, 1024), 64),
        devices=ddp_workbook.slider("devices (threads play them)", (1, 2, 3, 4), 2),
    )


def compare_step(width: int, batch: int, devices: int) -> StepComparison:
    """The fastest step of each, in turns: a busy moment makes both slower."""
    size, cpu = Size(width, DEPTH, batch), torch.device("cpu")
    model, images, labels = model_and_batch(size, cpu)

    def step() -> None:
        model.zero_grad()
        single_process.forward_and_backward(model, images, labels)

    pairs: list[tuple[pd.DataFrame, float]] = []
    least, most = STEPS
    start = time.perf_counter()
    while len(pairs) < least or (len(pairs) < most and time.perf_counter() < start + STEPS_S):
        events = record_step(devices, size, tries=1)
        pairs.append((events, min(time_step(step, warm_up=1, repeats=1, device=cpu))))
    fastest = min((events for events, _ in pairs), key=lambda events: events["end"].max())
    return StepComparison(fastest, min(alone for _, alone in pairs) * 1e3)


@figures.house_style
def comparison_plot(of_ranks: list[StepComparison], **_: object) -> figures.Picture:
    """Lanes of the stand-in's threads, and of one process; the price of the copies in words."""
    events, alone = of_ranks[0]
    threads = sorted(lane for lane in events["lane"].unique() if lane != MAIN)
    whole, share = events["end"].max(), copy_share(events)
    single = pd.DataFrame([(ALONE, "compute", 0.0, alone)], columns=events.columns)
    about = "One step of DataParallel, and of one process that uses all cores"
    picture = thread_lanes(pd.concat([events, single]), about, [MAIN, *threads, ALONE])
    faster = "One process" if alone < whole else "DataParallel"
    words = (
        f"DataParallel: {figures.number(whole)} ms, of which copying and adding take {share:.0%}\n"
        f"One process: {figures.number(alone)} ms. {faster} is faster here"
    )
    picture.axes.set_title(words)
    picture.alt += f" {words}.".replace("\n", ". ")
    return picture


def copy_share(events: pd.DataFrame) -> float:
    """The share of a step in which the main thread copies, cuts, adds up and gathers."""
    own = events[events["lane"] == MAIN]
    return float((own["end"] - own["start"]).sum() / events["end"].max())
