"""Losses of two trainings: the optimizer was made after the sharding, or before."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ddp_workbook.figures.distributed_data_parallel.step_times import loss_plot


def losses_plot(losses: pd.DataFrame) -> Figure:
    """A line for each column of `losses`, which says when the optimizer was made."""
    named = losses.rename(columns="optimizer made {} sharding".format).reset_index()
    figure = loss_plot(named.melt("step", var_name="candidate", value_name="loss"))
    figure.axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def alt_text_of_losses(losses: pd.DataFrame) -> str:
    """For each line where it begins and ends, and between which losses it lies."""
    words = [
        f"with the optimizer made {when} sharding, it is {line.iloc[0]:.2f} in the first step and "
        f"{line.iloc[-1]:.2f} in the last, and lies between {line.min():.2f} and {line.max():.2f}"
        for when, line in losses.items()
    ]
    return f"Loss against step: {'; '.join(words)}."
