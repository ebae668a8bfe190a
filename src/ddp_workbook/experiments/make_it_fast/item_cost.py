"""What `.item()` in each step costs: Python and the GPU on one clock, in a computed example."""

import pandas as pd

from manyranks import figures
from manyranks.figures.palette import INK, part_look

STEPS = 3
PREPARE_MS, QUEUE_MS, GPU_MS = 3.0, 3.0, 8.0  # of a step
KEPT, ITEM = "the loss stays a tensor", "loss.item() in each step"
LEGEND = {
    "loading": "Python prepares a step",
    "forward": "Python queues it",
    "waiting": "Python waits in .item()",
    "compute": "the GPU computes",
}


def events(waits: bool) -> list[tuple[str, str, float, float]]:
    """What Python and the GPU do: (lane, part, start, end); the GPU starts at the first kernel."""
    found, python, gpu = [], 0.0, 0.0
    for _ in range(STEPS):
        queued = python + PREPARE_MS
        found += [("Python", "loading", python, queued)]
        found += [("Python", "forward", queued, python := queued + QUEUE_MS)]
        found += [("GPU", "compute", start := max(queued, gpu), gpu := start + GPU_MS)]
        if waits and gpu > python:
            found += [("Python", "waiting", python, gpu)]
            python = gpu
    return found


@figures.house_style
def timeline() -> "figures.Picture":
    """Three steps without `.item()`, and three with it."""
    panels = {KEPT: events(False), ITEM: events(True)}
    rows = [(panel, *event) for panel, found in panels.items() for event in found]
    table = pd.DataFrame(rows, columns=["panel", "lane", "what", "start", "end"])
    keys = {words: part_look(part) for part, words in LEGEND.items()}
    ends = {panel: max(end for *_, end in found) for panel, found in panels.items()}
    about = (
        f"Computed for a step of which Python prepares {PREPARE_MS:g} ms and queues {QUEUE_MS:g}, "
        f"and the GPU computes {GPU_MS:g}: {STEPS} steps end after {ends[KEPT]:g}, with "
        f".item() after {ends[ITEM]:g}"
    )
    picture = figures.lanes(table, "milliseconds", about, order=["Python", "GPU"], keys=keys)
    for axes, panel in zip(picture.figure.axes, panels, strict=True):
        axes.axvline(ends[panel], color=INK, linewidth=1)
        axes.set_title(f"{panel}: {ends[panel]:g} ms", loc="left", size=10)
    for part, words in (("loading", "prepares"), ("forward", "queues"), ("waiting", "waits")):
        picture.alt = picture.alt.replace(f"{part} from", f"{words} from")
    return picture
