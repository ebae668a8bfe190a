"""How long an epoch takes with and without DataLoader workers."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import series_colour
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style


@style()
def loading_plot(timings: pd.DataFrame, cores: int, dashed: float) -> Figure:
    """A panel for each kind of samples, a bar for each way to load: the median epoch.

    `timings` has the columns kind, candidate, round and seconds. A dot is one epoch. `cores` share
    the work of all processes. `dashed` marks so many milliseconds. The slowest way is cut off where
    it would squeeze the other bars.
    """
    kinds = list(timings["kind"].unique())
    names = list(timings["candidate"].unique())
    medians = 1e3 * timings.groupby(["candidate", "kind"])["seconds"].median().unstack("kind")
    edge = min(medians.max().max(), 1.6 * medians.max(axis=1).nsmallest(len(names) - 1).max())
    figure = Figure((WIDTH, 1.2 + 0.42 * len(names)), layout="constrained")
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        for row, name in enumerate(names):
            epochs = 1e3 * _of(timings, kind, name)
            axes.barh(row, epochs.median(), height=0.66, color=series_colour(row))
            axes.plot(epochs, [row] * len(epochs), "o", ms=5, mfc="white", mec=INK)
            text = f"{epochs.median():.0f}"
            axes.text(1.02, row, text, va="center", transform=axes.get_yaxis_transform())
        axes.axvline(dashed, color=INK, lw=1.4, ls=(0, (4, 2)))
        axes.set_title(kind)
        axes.set_xlim(0, 1.05 * edge)
        axes.set_xlabel("milliseconds per epoch")
        axes.grid(axis="x")
    label_rows(panels[0], names)
    rounds = timings["round"].nunique()
    words = f"bar and number: median of {rounds} epochs; dot: one epoch; "
    words += f"dashed: {dashed:.0f} ms; {cores} cores"
    if medians.max().max() > edge:
        words += "; a bar that touches the edge is longer"
    figure.supxlabel(words, x=0.01, ha="left", fontsize=9)
    return figure


def alt_text_of_loading(timings: pd.DataFrame, cores: int) -> str:
    """What `loading_plot` shows, in words."""
    parts = [
        f"{kind}: "
        + ", ".join(
            f"{name} {1e3 * _of(timings, kind, name).median():.0f}"
            for name in timings["candidate"].unique()
        )
        for kind in timings["kind"].unique()
    ]
    return f"Median milliseconds per epoch on {cores} cores. " + ". ".join(parts) + "."


def _of(timings: pd.DataFrame, kind: str, name: str) -> pd.Series:
    chosen = (timings["kind"] == kind) & (timings["candidate"] == name)
    return timings.loc[chosen, "seconds"]
