"""What a step of DataParallel takes, part by part, and beside one process."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_hatch, series_colour
from ddp_workbook.figures.style import WIDTH, label_rows, style

ADDING = "add gradients"  # a part of its own in the stand-in only
OWN = ("compute", "optimizer", "backward and optimizer")  # what one process does, too


@style()
def parts_plot(parts: pd.DataFrame) -> Figure:
    """A stacked bar for each size, all on one scale: milliseconds of each part of a step.

    `parts` has a row for each size (width, depth, batch) and a column for each part. The
    price at the end of a bar is the share of what only DataParallel does: all that is not in OWN.
    """
    figure = Figure((WIDTH, 1.5 + 0.42 * len(parts)), layout="constrained")
    axes = figure.subplots()
    left = pd.Series(0.0, index=range(len(parts)))
    for index, (part, values) in enumerate(parts.items()):
        look = {"color": series_colour(index), "hatch": rank_hatch(index), "label": part}
        axes.barh(left.index, values.to_numpy(), left=left, **look)
        left = left + values.to_numpy()
    for row, share in enumerate(price_shares(parts)):
        axes.text(left[row] + left.max() * 0.01, row, f"price {share:.0%}", va="center")
    label_rows(axes, [size_in_words(size) for size in parts.index])
    title = "stand-in: CPU threads" if ADDING in parts else "nn.DataParallel, 2 GPUs"
    axes.set(xlabel="milliseconds a step", title=title, xlim=(0, left.max() * 1.17))
    figure.legend(loc="outside upper left", ncols=len(parts.columns))
    return figure


def alt_text_of_parts(parts: pd.DataFrame) -> str:
    """Each bar in words."""
    said = [
        f"{size_in_words(size)}: "
        + ", ".join(f"{part} {value:.2g}" for part, value in parts.loc[size].items())
        + f" ms; the price is {share:.0%}"
        for size, share in zip(parts.index, price_shares(parts), strict=True)
    ]
    return "Parts of a step on two devices, stacked. " + ". ".join(said) + "."


def price_shares(parts: pd.DataFrame) -> list[float]:
    """For each size the share of a step that one process would not need."""
    own = parts[[part for part in parts if part in OWN]].sum(axis=1)
    return (1 - own / parts.sum(axis=1)).tolist()


def size_in_words(size: tuple[int, int, int]) -> str:
    """Width, depth and batch."""
    width, depth, batch = size
    return f"width {width}, depth {depth}, batch {batch}"


def alt_text_of_step_times(table: pd.DataFrame) -> str:
    """Median step times in words; `table` has width, depth, batch, candidate and `median, ms`."""
    said = []
    for size, rows in table.groupby(["width", "depth", "batch"], sort=False):
        each = zip(rows["candidate"], rows["median, ms"], strict=True)
        said.append(f"{size_in_words(size)}: " + ", ".join(f"{n} {ms} ms" for n, ms in each))
    return "Median time of a training step. " + ". ".join(said) + "."
