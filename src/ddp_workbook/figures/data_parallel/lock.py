"""What a second thread gains."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style


@style()
def two_threads_plot(table: pd.DataFrame) -> Figure:
    """For each job the time with two threads, as a share of the time with one.

    `table` has a row for each job, and the columns 1 thread, 2 threads (milliseconds) and ratio.
    Lines mark 1, where two threads gain nothing, and 0.5, where they gain all they can.
    """
    figure = Figure((WIDTH, 1.2 + 0.42 * len(table)), layout="constrained")
    axes = figure.subplots()
    for row, (_, job) in enumerate(table.iterrows()):
        axes.barh(row, job["ratio"], color=series_colour(row), hatch=rank_hatch(row))
        times = f"{job['1 thread']:.3g} → {job['2 threads']:.3g} ms"
        axes.text(max(job["ratio"], 1) + 0.03, row, times, va="center")
    for place in (0.5, 1):
        axes.axvline(place, color=INK, linewidth=1.2, linestyle="--")
    label_rows(axes, list(table.index))
    axes.set(
        xlabel="time of two threads / time of one (0.5: the best possible, 1: nothing gained)",
        xlim=(0, max(1.0, table["ratio"].max()) * 1.35),
    )
    return figure


def alt_text_of_two_threads(table: pd.DataFrame) -> str:
    """Each bar in words."""
    said = [
        f"{name} {job['1 thread']:.3g} ms with one thread, {job['2 threads']:.3g} ms with two, a "
        f"ratio of {job['ratio']:.2f}"
        for name, job in table.iterrows()
    ]
    return "Time for doing each of three jobs twice: " + "; ".join(said) + "."
