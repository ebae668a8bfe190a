"""Chapter 06, checkpoints: which rank holds which rows, and what each rank writes."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ddp_workbook.figures.palette import rank_colour, rank_hatch
from ddp_workbook.figures.style import WIDTH, label_rows, style


@style()
def rows_plot(held: Mapping[str, Sequence[int]], parameter: str) -> Figure:
    """A strip for each way of holding one parameter: the rows of rank 0, of rank 1, and so on.

    `held` says for each strip how many rows each rank has; a rank may have none.
    """
    figure = Figure((WIDTH, 0.55 * len(held) + 0.9), layout="constrained")
    axes = figure.subplots()
    for strip, rows_of_ranks in enumerate(held.values()):
        first = 0
        for rank, rows in enumerate(rows_of_ranks):
            for row in range(first, first + rows):
                look = {"facecolor": rank_colour(rank), "hatch": rank_hatch(rank)}
                axes.add_patch(
                    Rectangle((row - 0.47, strip - 0.36), 0.94, 0.72, edgecolor="white", **look)
                )
            if rows:
                axes.text(
                    first + rows / 2 - 0.5, strip, f"rank {rank}", ha="center", va="center",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
                )  # fmt: skip
            first += rows
    axes.set_xlim(-0.6, first - 0.4)
    axes.set_xticks(range(first))
    axes.set_xlabel(f"row of {parameter}")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    label_rows(axes, list(held))
    return figure


@style()
def written_plot(written: Mapping[str, Sequence[int]]) -> Figure:
    """A panel for each way of saving: the bytes that each rank writes, in KiB."""
    figure = Figure((WIDTH, 2.9), layout="constrained")
    panels = figure.subplots(1, len(written), sharey=True, squeeze=False)[0]
    for axes, (way, bytes_of_ranks) in zip(panels, written.items(), strict=True):
        for rank, size in enumerate(bytes_of_ranks):
            look = {"color": rank_colour(rank), "hatch": rank_hatch(rank)}
            bar = axes.bar(rank, size / 1024, 0.8, edgecolor="white", **look)
            axes.bar_label(bar, [f"{size / 1024:,.0f}"], padding=2)
        axes.set_xticks(range(len(bytes_of_ranks)))
        axes.set(title=way, xlabel="rank")
    panels[0].set_ylabel("KiB written")
    panels[0].margins(y=0.15)  # room for the numbers; the panels share their axis
    return figure
