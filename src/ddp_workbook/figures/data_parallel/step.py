"""A step of DataParallel: its timeline."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style

MAIN = "main thread"


@style()
def step_timeline_plot(events: pd.DataFrame) -> Figure:
    """One step of the stand-in: a lane for the main thread and for each replica's thread.

    `events` has a row for each call: thread, operation, and start and end in milliseconds. The time
    in which only the main thread works is shaded.
    """
    lanes = lanes_of(events)
    figure = Figure((WIDTH, 1.7 + 0.32 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for index, (operation, calls) in enumerate(events.groupby("operation", sort=False)):
        look = {"color": series_colour(index), "hatch": rank_hatch(index), "label": operation}
        rows = [lanes.index(thread) for thread in calls["thread"]]
        axes.barh(rows, calls["end"] - calls["start"], left=calls["start"], **look)
    first, last = parallel_part(events)
    for start, end in ((0, first), (last, events["end"].max())):
        axes.fill_betweenx([-0.5, len(lanes) - 0.5], start, end, color=INK, alpha=0.08, linewidth=0)
    label_rows(axes, lanes)
    axes.set(xlabel="milliseconds since the step began", title="stand-in: CPU threads")
    axes.set_xlim(0, events["end"].max() * 1.01)
    figure.legend(loc="outside upper left", ncols=5)
    return figure


def alt_text_of_step_timeline(events: pd.DataFrame) -> str:
    """The lanes in words, with the same times."""
    first, last = parallel_part(events)
    times = (events["end"] - events["start"]).groupby(events["operation"], sort=False).max()
    said = ", ".join(f"{name} {milliseconds:.2g} ms" for name, milliseconds in times.items())
    return (
        f"One step of {events['end'].max():.3g} ms in {len(lanes_of(events))} lanes. The main "
        f"thread works alone until {first:.3g} ms, then waits while the other threads run their "
        f"replicas, and works alone again from {last:.3g} ms on. The longest calls: {said}."
    )


def parallel_part(events: pd.DataFrame) -> tuple[float, float]:
    """From when to when, in milliseconds, threads other than the main one work."""
    others = events[events["thread"] != MAIN]
    return others["start"].min(), others["end"].max()


def lanes_of(events: pd.DataFrame) -> list[str]:
    """The main thread first, then the others by number."""
    return sorted(events["thread"].unique(), key=lambda name: (name != MAIN, name))
