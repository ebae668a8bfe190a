"""Losses against steps: each rank's own beside the batch's, and trainings beside each other."""

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_colour, rank_marker, series_colour
from ddp_workbook.figures.style import INK, WIDTH, style

LINES = ("-", "--", "-.", ":")


@style()
def own_losses_plot(losses: pd.DataFrame) -> Figure:
    """A line for each rank's own rows, in its colour, and a black one for the whole batch.

    `losses` has a row for each step and the columns "rank 0", "rank 1", …, "whole batch".
    """
    figure = Figure((WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    for rank, name in enumerate(name for name in losses if name != "whole batch"):
        look = {"color": rank_colour(rank), "marker": rank_marker(rank), "markersize": 5}
        axes.plot(losses.index, losses[name], label=f"{name}, its own rows", linewidth=1.2, **look)
    axes.plot(losses.index, losses["whole batch"], color=INK, label="whole batch")
    axes.set(xlabel="step", ylabel="mean loss over the rows")
    _mark_the_short_batch(axes, losses.index[-1], losses.iloc[-1].min())
    axes.grid(axis="y")
    axes.legend()
    return figure


def alt_text_of_own_losses(losses: pd.DataFrame) -> str:
    """First and last numbers, and between which the batch's loss lies."""
    first, last = losses.iloc[0], losses.iloc[-2]
    words = ", ".join(f"{name} {first[name]:.2f} to {last[name]:.2f}" for name in losses)
    return (
        f"Loss of each rank's own rows and of the whole batch, against the step: {words}. The "
        "ranks' lines cross; that of the batch lies between them. The last batch has five rows."
    )


@style()
def trainings_plot(panels: Mapping[str, pd.DataFrame], highest: float | None = None) -> Figure:
    """A panel for each optimizer, in it a line for each training, on one logarithmic loss axis.

    Each table has a row for each step, or epoch, and a column for each training. What lies above
    `highest` is cut off.
    """
    figure = Figure((WIDTH, 3.6), layout="constrained")
    across = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, losses) in zip(across, panels.items(), strict=True):
        for place, training in enumerate(losses):
            look = {"color": series_colour((0, 5, 2, 4)[place % 4]), "linestyle": LINES[place % 4]}
            axes.plot(losses.index, losses[training], label=training, **look)
        axes.set(xlabel=losses.index.name, title=name, yscale="log")
        axes.grid(axis="y")
        axes.legend(fontsize=9)
    across[0].set_ylabel("mean loss over the rows")
    if highest:
        across[0].set_ylim(top=highest)
    return figure


def alt_text_of_trainings(panels: Mapping[str, pd.DataFrame], row: int = -1) -> str:
    """Each training's loss in one row of the tables, by default the last."""
    words = []
    for name, losses in panels.items():
        said = ", ".join(f"{training} {losses[training].iloc[row]:.3g}" for training in losses)
        words.append(f"{name}, {losses.index.name} {losses.index[row]}: {said}")
    return f"Loss of trainings beside each other. {'. '.join(words)}."


def _mark_the_short_batch(axes: Axes, step: int, loss: float) -> None:
    if math.isfinite(loss):
        axes.annotate(
            "the last batch has five rows",
            (step, loss),
            xytext=(-14, 2),
            textcoords="offset points",
            ha="right",
            va="center",
            size=9,
            arrowprops={"arrowstyle": "->", "color": INK},
        )
