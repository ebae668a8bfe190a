"""What devices hold."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import WIDTH, label_rows, style


@style()
def device_memory_plot(held: pd.DataFrame) -> Figure:
    """A stacked bar for each device (the index): the bytes it holds, by kind (the columns)."""
    figure = Figure((WIDTH, 2.2), layout="constrained")
    axes, left = figure.subplots(), np.zeros(len(held))
    for index, (kind, sizes) in enumerate(held.items()):
        look = {"color": series_colour(index), "hatch": rank_hatch(index), "label": kind}
        axes.barh(held.index, sizes / 1024, left=left, **look)
        left = left + sizes / 1024
    label_rows(axes, [f"device {device}" for device in held.index])
    axes.set(xlabel="KiB of tensors at the end of a step (stand-in: CPU threads)")
    figure.legend(loc="outside upper left", ncols=5)
    return figure


def alt_text_of_device_memory(held: pd.DataFrame) -> str:
    """Each bar in words; what a device does not hold is left out."""
    said = [
        f"device {device}: "
        + ", ".join(f"{kind} {size / 1024:.3g}" for kind, size in kinds.items() if size)
        + f", {kinds.sum() / 1024:.3g} KiB in all"
        for device, kinds in held.iterrows()
    ]
    return "KiB of tensors on each device at the end of a step. " + ". ".join(said) + "."
