"""How much each row of a batch counts in a gradient."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_colour, rank_hatch
from ddp_workbook.figures.style import INK, WIDTH, style


@style()
def row_weights_plot(weights: pd.DataFrame, sizes: Sequence[int]) -> Figure:
    """A panel for each combination of gradients, a bar for each row, in its device's colour.

    `weights` has a row for each combination and a column for each row of the batch; `sizes` says
    how many rows each device has. A line marks 1 / rows, the weight in the mean over the batch.
    """
    owners = owners_of(sizes)
    figure = Figure((WIDTH, 2.6), layout="constrained")
    panels = figure.subplots(1, len(weights), sharey=True, squeeze=False).flat
    for axes, (name, values) in zip(panels, weights.iterrows(), strict=True):
        for row, (value, owner) in enumerate(zip(values, owners, strict=True)):
            axes.bar(row, value, color=rank_colour(owner), hatch=rank_hatch(owner))
        axes.axhline(1 / len(owners), color=INK, linewidth=1.2, linestyle="--")
        axes.set(title=name, xticks=range(len(owners)), xlabel="row of the batch")
    figure.axes[0].set_ylabel("weight in the gradient")
    figure.axes[-1].text(
        len(owners) - 0.5, 1.08 / len(owners), f"1/{len(owners)}", ha="right", va="bottom", size=9
    )
    handles = [
        figure.axes[0].bar(0, 0, color=rank_colour(d), hatch=rank_hatch(d), label=f"device {d}")
        for d in range(len(sizes))
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(sizes))
    return figure


def alt_text_of_row_weights(weights: pd.DataFrame, sizes: Sequence[int]) -> str:
    """The weights in words: for each combination, those of each device's rows."""
    owners = pd.Series(owners_of(sizes), index=weights.columns)
    said = []
    for name, values in weights.iterrows():
        of_devices = values.groupby(owners).mean()
        said.append(f"{name}: " + ", ".join(f"{value:.2f}" for value in of_devices))
    return (
        f"How much each of {len(owners)} rows counts in a gradient, by device. "
        + "; ".join(said)
        + f". In the mean over the batch it is {1 / len(owners):.2f} for each row."
    )


def owners_of(sizes: Sequence[int]) -> list[int]:
    """For each row of the batch the device that has it."""
    return [device for device, size in enumerate(sizes) for _ in range(size)]
