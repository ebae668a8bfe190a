"""A step of DataParallel: its timeline."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import WIDTH, label_rows, style


@style()
def step_timeline_plot(events: pd.DataFrame) -> Figure:
    """One step of the stand-in: a lane for the main thread and for each replica's thread.

    `events` has a row for each call: thread, operation, and start and end in milliseconds.
    """
    lanes = ["main thread", "thread 0", "thread 1"]
    figure = Figure((WIDTH, 2.6), layout="constrained")
    axes = figure.subplots()
    for index, (operation, calls) in enumerate(events.groupby("operation", sort=False)):
        look = {"color": series_colour(index), "hatch": rank_hatch(index), "label": operation}
        rows = [lanes.index(thread) for thread in calls["thread"]]
        axes.barh(rows, calls["end"] - calls["start"], left=calls["start"], **look)
    label_rows(axes, lanes)
    axes.set(xlabel="milliseconds since the step began", title="stand-in: CPU threads")
    figure.legend(loc="outside upper right", ncols=4)
    return figure
