"""How long the ranks of four ways to start them take until they train, and until all is over."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_colour, series_colour, tint
from ddp_workbook.figures.style import INK, WIDTH, style


class Start(NamedTuple):
    """A run that was started in one `way`; times in seconds since it was asked for.

    `seconds` is when the call returned, `trained` has for each rank when its worker began and
    ended. `threads` is how many a rank had for its computing.
    """

    way: str
    seconds: float
    trained: list[tuple[float, float]]
    threads: int
    accuracy: float


@style()
def starts_plot(starts: Sequence[Start]) -> Figure:
    """A lane for each rank of each way: pale until its worker begins, full while it trains."""
    figure = Figure((WIDTH, 1.1 + 0.62 * len(starts)), layout="constrained")
    axes = figure.subplots()
    places = []
    for row, start in enumerate(starts):
        height = 0.7 / len(start.trained)
        for rank, (began, ended) in enumerate(start.trained):
            colour, place = rank_colour(rank), row - 0.35 + (rank + 0.5) * height
            look = {"height": height * 0.84, "edgecolor": colour, "linewidth": 1}
            axes.barh(place, began, facecolor=tint(colour, 0.2), **look)
            axes.barh(place, ended - began, left=began, facecolor=colour, **look)
        axes.plot([start.seconds] * 2, [row - 0.38, row + 0.38], color=INK, linewidth=2)
        axes.text(start.seconds, row, f"  {start.seconds:.1f} s", va="center")
        places.append(row)
    axes.set_yticks(places, [start.way for start in starts])
    axes.set_ylim(len(starts) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.12 * max(start.seconds for start in starts))
    axes.set_xlabel("seconds since it was started")
    grey = series_colour(0)
    ranks = len(starts[0].trained)
    keys = [Patch(facecolor=rank_colour(rank), label=f"rank {rank}") for rank in range(ranks)]
    keys += [
        Patch(facecolor=tint(grey, 0.2), edgecolor=grey, label="starts"),
        Patch(facecolor=grey, label="trains"),
        Line2D([], [], color=INK, linewidth=2, label="all over"),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=len(keys), handlelength=1.6)
    return figure


def alt_text_of_starts(starts: Sequence[Start]) -> str:
    """The same times in words."""
    words = [
        f"{start.way}: the ranks begin to train after "
        f"{' and '.join(f'{began:.1f}' for began, _ in start.trained)} s, and all is over after "
        f"{start.seconds:.1f} s"
        for start in starts
    ]
    return "The same training, started in four ways. " + "; ".join(words) + "."
