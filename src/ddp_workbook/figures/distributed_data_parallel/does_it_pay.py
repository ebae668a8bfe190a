"""Step time against the rows of a batch: one process, DDP measured, and what the formula says."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, ScalarFormatter

from ddp_workbook.figures.palette import series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style


@style()
def break_even_plot(measured: pd.DataFrame, even: float) -> Figure:
    """Milliseconds of a step for each number of rows (the index), and where DDP begins to pay.

    Columns: "one process", "DDP", "nothing hidden" and "hidden by backward". `even` is the rows at
    which DDP is as fast as one process by the formula, or nan.
    """
    figure = Figure((WIDTH, 3.6), layout="constrained")
    axes, rows = figure.subplots(), measured.index
    band = measured["hidden by backward"], measured["nothing hidden"]
    axes.fill_between(rows, *band, color=tint(series_colour(2), 0.4), label="DDP, by formula")
    for place, name in enumerate(("one process", "DDP")):
        look = {"color": series_colour((0, 3)[place]), "marker": "os"[place]}
        axes.plot(rows, measured[name], label=f"{name}, measured", **look)
    if even == even and rows.min() <= even <= rows.max():
        axes.axvline(even, color=INK, linestyle="--", linewidth=1)
        words = " C = 2 S / B"
        axes.text(even, measured.min().min(), words, va="bottom", size=9)
    axes.set(xscale="log", yscale="log", xlabel="rows of the global batch", ylabel="ms a step")
    axes.set_xticks(rows, [str(row) for row in rows])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.legend()
    return figure


def alt_text_of_break_even(measured: pd.DataFrame, even: float) -> str:
    """The measured milliseconds of each size, and the break-even by the formula."""
    words = [
        f"{rows} rows: one process {row['one process']:.1f}, DDP {row['DDP']:.1f}, by formula "
        f"{row['hidden by backward']:.1f} to {row['nothing hidden']:.1f}"
        for rows, row in measured.iterrows()
    ]
    last = f" The formula's break-even is at {even:.0f} rows." if even == even else ""
    return f"Milliseconds of a step. {'; '.join(words)}.{last}"
