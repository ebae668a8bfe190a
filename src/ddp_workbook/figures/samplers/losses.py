"""The loss by the order of the samples: what a program prints, and what is true."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import rank_marker, series_colour
from ddp_workbook.figures.style import WIDTH, style

TITLES = {"printed": "mean of the steps' losses", "true": "loss of all digits after the epoch"}


@style()
def losses_plot(losses: pd.DataFrame) -> Figure:
    """Two panels, the printed loss and the true one: a line a way, the mean over the seeds.

    `losses` has the columns way, seed, epoch, printed and true. The band behind a line goes from
    the lowest to the highest seed.
    """
    figure = Figure((WIDTH, 3.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column in zip(panels, TITLES, strict=True):
        for look, (way, rows) in enumerate(losses.groupby("way", sort=False)):
            each = rows.groupby("epoch")[column]
            mean, colour = each.mean(), series_colour(2 * look)
            axes.fill_between(mean.index, each.min(), each.max(), color=colour, alpha=0.15, lw=0)
            axes.plot(mean.index, mean, color=colour, marker=rank_marker(look), label=way)
        axes.set(title=TITLES[column], xlabel="epochs", yscale="log")
        axes.set_yticks([0.1, 0.2, 0.5, 1, 2, 5])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(axis="y")
    panels[0].set_ylabel("loss")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def alt_text_of_losses(losses: pd.DataFrame) -> str:
    """What `losses_plot` shows, in words."""
    first, last = losses["epoch"].min(), losses["epoch"].max()
    means = losses.groupby(["way", "epoch"], sort=False)[list(TITLES)].mean()
    lines = [
        f"{way}: {TITLES[column]} from {means[column][way, first]:.2f} after epoch {first} to "
        f"{means[column][way, last]:.3f} after epoch {last}."
        for column in TITLES
        for way in losses["way"].unique()
    ]
    return " ".join(["Two panels with a line for each way to order the samples.", *lines])


@style()
def ranks_plot(losses: pd.DataFrame) -> Figure:
    """Loss against step, a line for each number of ranks; the columns are ranks, step, loss."""
    figure = Figure((WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    sizes = list(losses["ranks"].unique())
    for look, (ranks, rows) in enumerate(losses.groupby("ranks", sort=False)):
        name = f"{ranks} rank{'s' * (ranks > 1)}"
        # An offset for each line: the markers stay apart where lines coincide.
        marks = {"marker": rank_marker(look), "markevery": (look, len(sizes))}
        axes.plot(rows["step"], rows["loss"], color=series_colour(2 * look), label=name, **marks)
    axes.set(xlabel="step", ylabel="loss of the global batch", ylim=(0, None))
    axes.grid(axis="y")
    axes.legend()
    return figure


def alt_text_of_ranks(losses: pd.DataFrame) -> str:
    """What `ranks_plot` shows, in words."""
    wide = losses.pivot(index="step", columns="ranks", values="loss")
    apart = (wide.max(axis=1) - wide.min(axis=1)).max()
    sizes = ", ".join(map(str, wide.columns))
    return (
        f"Loss in {len(wide)} steps on {sizes} ranks: from {wide.iloc[0].mean():.2f} to "
        f"{wide.iloc[-1].mean():.2f}. The lines are at most {apart:.1e} apart."
    )
