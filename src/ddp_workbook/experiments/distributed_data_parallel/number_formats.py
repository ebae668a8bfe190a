"""Three formats of numbers on one line, and what they can hold of a training's gradients."""

from __future__ import annotations

import math

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook import figures
from ddp_workbook.digits import DigitsDataset
from ddp_workbook.experiments.distributed_data_parallel.loss_scaling import ROWS, deep_sigmoids
from ddp_workbook.figures.palette import INK, series_colour, tint

FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def smallest(dtype: torch.dtype) -> float:
    """The smallest number above 0 that the format has; below half of it, 0 is nearer."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps


def gradients() -> Tensor:
    """Every gradient of a deep network in its first step, in float32, flat, without zeros."""
    digits, model = DigitsDataset(), deep_sigmoids()
    F.cross_entropy(model(digits.images[:ROWS]), digits.labels[:ROWS]).backward()
    flat = nn.utils.parameters_to_vector([one.grad for one in model.parameters()])
    return flat[flat != 0]


def compared(values: Tensor) -> pd.DataFrame:
    """A row for each format: its limits, and what becomes of float32 `values` [n] in it.

    `becomes 0` is a share of the values, 0 to 1. `digits` is how many decimal digits a number has,
    from the distance of neighbours: eps of `torch.finfo`. The error is relative.
    """
    rows = {}
    for name, dtype in FORMATS.items():
        info, rounded = torch.finfo(dtype), values.to(dtype).float()
        kept = rounded != 0
        rows[name] = {
            "bits": info.bits,
            "largest": f"{info.max:.1e}",
            "smallest": f"{smallest(dtype):.1e}",
            "digits": f"{-math.log10(info.eps):.1f}",
            "becomes 0": f"{1 - kept.float().mean().item():.1%}",
            "median error of the rest": f"{(rounded / values - 1)[kept].abs().median().item():.1g}",
        }
    return pd.DataFrame(rows).T


@figures.drawn
def number_line(values: Tensor) -> figures.Picture:
    """Above, how large `values` [n] are; below, the range of each format on the same axis.

    A range is pale where the format loses digits: below its smallest normal number.
    """
    figure = figures.Figure((figures.WIDTH, 3.9), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1.6, 1))
    powers = values.abs().log10()
    counts, edges = torch.histogram(powers, bins=60)
    above.stairs(counts / len(values), edges, fill=True, color=series_colour(2))
    above.set(ylabel="share of gradients")
    for row, dtype in enumerate(FORMATS.values()):
        info = torch.finfo(dtype)
        ends = [math.log10(one) for one in (smallest(dtype), info.smallest_normal, info.max)]
        colour = series_colour((0, 5, 3)[row])
        below.barh(row, ends[1] - ends[0], left=ends[0], height=0.6, color=tint(colour, 0.4))
        below.barh(row, ends[2] - ends[1], left=ends[1], height=0.6, color=colour)
    lost = math.log10(smallest(torch.float16) / 2)
    for axes in (above, below):
        axes.axvline(lost, color=INK, linestyle="--", linewidth=1)
    share = (powers < lost).float().mean().item()
    words = f"{share:.0%} become 0 in float16 "
    above.text(lost, above.get_ylim()[1], words, ha="right", va="top", size=9)
    figures.label_rows(below, list(FORMATS))
    ticks = range(-45, 46, 5)
    below.set_xticks(ticks, [f"$10^{{{power}}}$" for power in ticks], size=9)
    below.set_xlabel("absolute value; pale: with fewer digits")
    return figures.Picture(figure, _words(powers, share))


def _words(powers: Tensor, share: float) -> str:
    ranges = "; ".join(
        f"{name} from {smallest(dtype):.1e} to {torch.finfo(dtype).max:.1e}, with all its digits "
        f"from {torch.finfo(dtype).smallest_normal:.1e}"
        for name, dtype in FORMATS.items()
    )
    low, middle, high = 10.0 ** torch.quantile(powers, torch.tensor([0.0, 0.5, 1.0]))
    return (
        f"Three formats on one number line: {ranges}. Above them, the gradients of a deep network: "
        f"from {low:.0e} to {high:.0e}, half of them below {middle:.0e}. {share:.0%} of them are "
        "below the line under which float16 has only 0."
    )
