"""How ranks find each other, drawn: what they write into a store, and who is connected to whom."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_colour, rank_hatch, tint
from ddp_workbook.figures.plots import WIDTH
from ddp_workbook.figures.style import INK, PictureError, style

MOST = 16  # ranks that find room on the circle
VERBS = ("set", "get", "wait")


class StoreEvent(NamedTuple):
    """One use of a store: `rank` did `what` (set, get or wait) with what `owner` wrote."""

    rank: int
    what: str
    owner: int
    start: float  # seconds on a clock that all ranks share
    end: float


@style()
def store_plot(events: Iterable[StoreEvent]) -> Figure:
    """A lane for each rank: when it wrote into the store, and how long it waited for the others.

    A wide dark mark is a `set`. A bar is a `get` or a `wait`, in the colour and with the number of
    the rank whose value it asks for; its end is when the value came. Time is in milliseconds since
    the first event. Raises PictureError without events, or for another `what`.
    """
    events = sorted(events, key=lambda event: event.start)
    if not events:
        raise PictureError("There are no events to draw.")
    strange = [event.what for event in events if event.what not in VERBS]
    if strange:
        raise PictureError(f"store_plot knows {', '.join(VERBS)}, not {strange[0]!r}.")
    ranks, began = sorted({event.rank for event in events}), events[0].start
    last = 1e3 * (max(event.end for event in events) - began)
    figure = Figure((WIDTH, 0.9 + 0.5 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    for event in events:
        start, end = 1e3 * (event.start - began), 1e3 * (event.end - began)
        lane = ranks.index(event.rank)
        if event.what == "set":
            axes.vlines(start, lane - 0.42, lane + 0.42, color=INK, linewidth=3.5, zorder=3)
        else:
            _bar(axes, lane, start, max(end - start, last / 400), event.owner, last)
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("milliseconds since the first of them wrote its address")
    _legend(figure, sorted({event.owner for event in events}))
    return figure


@style()
def connections_plot(pairs: Iterable[tuple[int, int]], ranks: int, store: bool = True) -> Figure:
    """Ranks on a circle, a line for each connection between two of them, dotted ones to the store.

    `pairs` are the connections that were found open, each once or from both ends. Raises
    PictureError for fewer than 1 or more than 16 ranks, or a pair with a rank that is none.
    """
    pairs = {tuple(sorted(pair)) for pair in pairs}
    if not 1 <= ranks <= MOST:
        raise PictureError(f"There are {ranks} ranks; connections_plot shows 1 to {MOST}.")
    wrong = [pair for pair in pairs if not 0 <= pair[0] < pair[1] < ranks]
    if wrong:
        raise PictureError(f"The pair {wrong[0]} is no connection between two of {ranks} ranks.")
    figure = Figure((5.4, 3.0), layout="constrained")
    axes = figure.subplots()
    spots = _circle(ranks)
    for one, other in pairs:
        axes.plot(*zip(spots[one], spots[other], strict=True), color=INK, linewidth=1.6, zorder=1)
    if store:
        for spot in spots:
            axes.plot(*zip(spot, (1.75, 0), strict=True), color=INK, linestyle=(0, (1, 2)), lw=1.1)
        box = {"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": INK}
        axes.text(1.75, 0, "store", ha="center", va="center", bbox=box)
    for rank, spot in enumerate(spots):
        colour = rank_colour(rank)
        look = {
            "boxstyle": "round,pad=0.4",
            "facecolor": tint(colour),
            "edgecolor": colour,
            "lw": 2,
        }
        axes.text(*spot, f"rank {rank}", ha="center", va="center", bbox=look, zorder=2)
    axes.set(xlim=(-1.45, 2.1), ylim=(-1.15, 1.15), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return figure


def _circle(ranks: int) -> Sequence[tuple[float, float]]:
    """Places of the ranks, from the top left on, clockwise; one rank stands in the middle."""
    if ranks == 1:
        return [(0.0, 0.0)]
    angles = [math.pi * (0.75 - 2 * rank / ranks) for rank in range(ranks)]
    return [(math.cos(angle), math.sin(angle)) for angle in angles]


def _bar(axes: Axes, lane: int, start: float, width: float, owner: int, last: float) -> None:
    colour = rank_colour(owner)
    look = {"facecolor": tint(colour, 0.45), "edgecolor": colour, "hatch": rank_hatch(owner)}
    axes.barh(lane, width, left=start, height=0.62, **look)
    if width > last / 25:
        paper = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
        middle = start + width / 2
        axes.text(middle, lane, str(owner), ha="center", va="center", fontsize=9, bbox=paper)


def _legend(figure: Figure, owners: Sequence[int]) -> None:
    keys = [Patch(label="set: writes its own address", facecolor=INK)]
    for owner in owners:
        colour = rank_colour(owner)
        look = {"facecolor": tint(colour, 0.45), "edgecolor": colour, "hatch": rank_hatch(owner)}
        keys.append(Patch(label=f"waits for that of rank {owner}", **look))
    figure.legend(handles=keys, loc="outside upper left", ncols=3, handlelength=1.4)
