"""How ranks meet: what they ask of the store, and who is connected to whom."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddp_workbook.figures.palette import rank_colour, rank_hatch, tint
from ddp_workbook.figures.style import INK, WIDTH, style

ANSWER = "#b4b4b4"  # the store is at work; no rank has this colour


class StoreEvent(NamedTuple):
    """One call on a store: `rank` called `what` (set, get or wait) on the value of rank `owner`."""

    rank: int
    what: str
    owner: int
    start: float  # seconds on a clock that all ranks share
    end: float


@style()
def store_plot(events: Iterable[StoreEvent]) -> Figure:
    """A lane for each rank: when it wrote to the store, and how long it waited for the others.

    A dark vertical mark is the start of a `set`. A bar is a `get` or a `wait`. As long as the value
    that it asks for has not been written, it has the colour and the number of that value's rank;
    from then on, until the answer is there, it is grey. Time is in milliseconds since the first
    event.
    """
    events = sorted(events, key=lambda event: event.start)
    ranks, began = sorted({event.rank for event in events}), events[0].start
    written = {event.owner: event.start for event in events if event.what == "set"}
    last = 1e3 * (max(event.end for event in events) - began)
    figure = Figure((WIDTH, 0.9 + 0.5 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    for event in events:
        lane, start = ranks.index(event.rank), 1e3 * (event.start - began)
        if event.what == "set":
            axes.vlines(start, lane - 0.42, lane + 0.42, color=INK, linewidth=3.5, zorder=3)
            continue
        waited, answered = 1e3 * waiting(event, written), 1e3 * (event.end - event.start)
        if waited:
            _bar(axes, lane, start, waited, event.owner, last)
        if answered > waited:
            axes.barh(lane, answered - waited, left=start + waited, height=0.62, color=ANSWER)
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("milliseconds since the first of them began to write its address")
    _legend(figure, sorted({e.owner for e in events if e.what != "set" and waiting(e, written)}))
    return figure


def waiting(event: StoreEvent, written: dict[int, float]) -> float:
    """Seconds of this call before its value was written; `written`: when each `set` began."""
    if event.what == "set" or event.owner not in written:
        return 0.0
    return max(0.0, min(event.end, written[event.owner]) - event.start)


def alt_text_of_store(events: Iterable[StoreEvent]) -> str:
    """The same in words: for whom each rank waited longest."""
    events = sorted(events, key=lambda event: event.start)
    written = {event.owner: event.start for event in events if event.what == "set"}
    order = ", ".join(map(str, sorted(written, key=written.get)))
    parts = []
    for rank in sorted({event.rank for event in events}):
        own = [event for event in events if event.rank == rank]
        longest = max(own, key=lambda event: waiting(event, written))
        if seconds := waiting(longest, written):
            parts.append(f"rank {rank} for rank {longest.owner}, {1e3 * seconds:.0f} ms")
        else:
            parts.append(f"rank {rank} for nobody")
    return (
        "A lane for each rank, over time. Each rank writes its own address once and reads those of "
        f"all ranks. They wrote in the order {order}. The longest waits: {'; '.join(parts)}."
    )


@style()
def connections_plot(pairs: Iterable[tuple[int, int]], ranks: int) -> Figure:
    """Ranks on a circle, a line for each connection between two ranks, a dotted one to the store.

    `pairs` are the open connections, each listed once or from both ends.
    """
    pairs = {tuple(sorted(pair)) for pair in pairs}
    spots = _circle(ranks)
    lowest, highest = min(y for _, y in spots) - 0.25, max(y for _, y in spots) + 0.25
    figure = Figure((5.4, 1.3 * (highest - lowest)), layout="constrained")
    axes = figure.subplots()
    for one, other in pairs:
        axes.plot(*zip(spots[one], spots[other], strict=True), color=INK, linewidth=1.6, zorder=1)
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
    axes.set(xlim=(-1.45, 2.1), ylim=(lowest, highest), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return figure


def alt_text_of_connections(pairs: Iterable[tuple[int, int]], ranks: int) -> str:
    """The same in words."""
    pairs = sorted({tuple(sorted(pair)) for pair in pairs})
    lines = ", ".join(f"{one} and {other}" for one, other in pairs)
    return (
        f"{ranks} ranks on a circle, with {len(pairs)} lines, between the ranks {lines}. A dotted "
        "line joins each rank to the store."
    )


def _circle(ranks: int) -> Sequence[tuple[float, float]]:
    """Positions of the ranks, clockwise from the top left; a single rank is in the middle."""
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
    keys = [
        Patch(label="begins to write its address", facecolor=INK),
        Patch(label="the store answers", facecolor=ANSWER),
    ]
    for owner in owners:
        colour = rank_colour(owner)
        look = {"facecolor": tint(colour, 0.45), "edgecolor": colour, "hatch": rank_hatch(owner)}
        keys.append(Patch(label=f"rank {owner} has not written yet", **look))
    figure.legend(handles=keys, loc="outside upper left", ncols=3, handlelength=1.4)
