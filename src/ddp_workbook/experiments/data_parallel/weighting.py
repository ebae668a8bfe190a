"""Gradients of uneven pieces: how much each sample counts in a combination of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor, nn

from ddp_workbook.chapters import single_process
from ddp_workbook.experiments.data_parallel.one_step import flat_gradient
from manyranks import figures


def gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the mean loss over these samples, all parameters in one vector."""
    model.zero_grad()
    single_process.forward_and_backward(model, images, labels)
    return flat_gradient(model)


def distance_table(combinations: Mapping[str, Tensor], whole: Tensor) -> pd.DataFrame:
    """For each combination its distance from the gradient `whole`, and its norm.

    Both are percentages of the norm of `whole`.
    """
    norm = whole.norm()
    columns = {
        "differs from the batch's by": [
            f"{(combination - whole).norm() / norm:.0%}" for combination in combinations.values()
        ],
        "its norm, as a share of the batch's": [
            f"{combination.norm() / norm:.0%}" for combination in combinations.values()
        ],
    }
    return pd.DataFrame(columns, index=[*combinations]).rename_axis("gradient")


def weight_of_each_row(
    model: nn.Module, images: Tensor, labels: Tensor, combinations: Mapping[str, Tensor]
) -> pd.DataFrame:
    """How much each sample counts in each combination: a row for each of them, a column a sample.

    A combination is a weighted sum of the samples' own gradients. The weights are found by least
    squares, so they are measured and not assumed.
    """
    rows = range(len(images))
    own = [gradient(model, images[row : row + 1], labels[row : row + 1]) for row in rows]
    basis = torch.stack(own, dim=1).double()
    weights = {
        name: torch.linalg.lstsq(basis, combination.double()).solution.tolist()
        for name, combination in combinations.items()
    }
    return pd.DataFrame.from_dict(weights, orient="index", columns=[*rows])


@figures.house_style
def row_weights(weights: pd.DataFrame, sizes: Sequence[int]) -> figures.Picture:
    """A panel for each combination of gradients, a bar for each sample, in its device's colour.

    `weights` is what `weight_of_each_row` returns; `sizes` says how many samples each device has. A
    line marks 1 / samples, the weight in the mean over the batch.
    """
    devices = [f"device {device}" for device, size in enumerate(sizes) for _ in range(size)]
    rows, panels = len(devices), {}
    for name, values in weights.iterrows():
        panels[name] = pd.DataFrame({"device": devices, "weight": values})
        panels[name] = panels[name].pivot(columns="device", values="weight").fillna(0.0)
    unit = "weight in the gradient"
    picture = figures.bars(panels, unit, "How much each sample of a batch counts", upright=True)
    for legend in picture.figure.legends:
        legend.remove()
    for axes in picture.figure.axes:
        axes.axhline(1 / rows, color="black", linewidth=1.2, linestyle="--")
        axes.set_xlabel("sample of the batch")
    first, *_, last = picture.figure.axes
    for device, size in enumerate(sizes):
        right = sum(sizes[: device + 1])
        height = weights.iloc[0, right - 1]
        place = {"ha": "center", "va": "bottom", "size": 9}
        if size > 1:
            first.text(right - size / 2 - 0.5, height * 1.03, f"device {device}", **place)
        else:
            first.text(right - 0.5, height * 1.01, f"device {device}", **place | {"ha": "right"})
    last.text(rows - 0.5, 1.08 / rows, f"1/{rows}", ha="right", va="bottom", size=9)
    picture.alt += f" In the mean over the batch it is {1 / rows:.2f} for each sample."
    return picture
