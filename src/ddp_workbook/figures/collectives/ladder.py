"""Chapter 05: the ladder of ways to add up gradients over the ranks."""

import pandas as pd
from matplotlib.figure import Figure

from ddp_workbook.figures.palette import series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, label_rows, style

DISTURBED = "A bar ends left of the dashed line: noise is larger than the cost of communication."


@style()
def ladder_plot(times: pd.DataFrame) -> Figure:
    """A panel a network, a bar a rung: its fastest round, with a line to the median of the rounds.

    `times` has the columns network, rung, round and seconds. The first rung communicates nothing,
    and a dashed line marks where it ends: what is right of the line is the cost of communication.
    If a bar ends left of the line, a sentence above the panels says why.
    """
    rungs = list(times["rung"].unique())
    figure = Figure((WIDTH, 0.8 + 0.42 * len(rungs)), layout="constrained")
    if is_disturbed(times):
        figure.suptitle(DISTURBED, x=0.01, ha="left", size=10)
    networks = list(times["network"].unique())
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    for axes, network in zip(panels, networks, strict=True):
        of_rungs = times[times["network"] == network].groupby("rung", sort=False)["seconds"]
        table = of_rungs.agg(["min", "median"]).mul(1e3).loc[rungs]
        for row, one in enumerate(table.itertuples()):
            colour = series_colour(0 if row == 0 else 2)
            axes.barh(row, one.min, height=0.62, color=tint(colour, 0.6))
            axes.plot([one.min, one.median], [row, row], color=INK, linewidth=1.2)
            axes.text(one.median, row, f"  {one.min:.0f}", va="center", size=10)
        axes.axvline(table["min"].iloc[0], color=INK, linestyle="dashed", linewidth=1.2)
        axes.set(title=network, xlabel="milliseconds")
        axes.set_xlim(0, 1.18 * table["median"].max())
        label_rows(axes, rungs)
    return figure


def alt_text_of_ladder(times: pd.DataFrame) -> str:
    """The fastest rounds, by network and rung; and whether other programs disturbed them."""
    fastest = times.groupby(["network", "rung"], sort=False)["seconds"].min() * 1e3
    texts = [
        f"{network}: " + ", ".join(f"{rung} {ms:.0f}" for (_, rung), ms in part.items())
        for network, part in fastest.groupby(level="network", sort=False)
    ]
    of = "Milliseconds of forward, backward and communication, in the fastest round"
    return f"{of}. {'. '.join(texts)}." + (f" {DISTURBED}" if is_disturbed(times) else "")


def is_disturbed(times: pd.DataFrame) -> bool:
    """Whether some way was faster than no communication, which only noise can explain."""
    fastest = times.groupby(["network", "rung"], sort=False)["seconds"].min()
    return any((part < part.iloc[0]).any() for _, part in fastest.groupby(level="network"))
