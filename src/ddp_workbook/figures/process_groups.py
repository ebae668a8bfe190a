"""Chapter 03's pictures: how ranks find each other, their nodes, and the groups of a mesh."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from ddp_workbook.figures.palette import rank_colour, rank_hatch, tint
from ddp_workbook.figures.style import INK, WIDTH, style

BOX = 0.92  # inches across one rank, where there is room
PER_ROW = 8  # ranks of a node in one line
GROUP = "#5c5c5c"  # of groups: no rank has this colour


# How ranks find each other


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

    A dark vertical mark is a `set`. A bar is a `get` or a `wait`, in the colour and with the number
    of the rank whose value it asks for, and ends when the value arrives. Time is in milliseconds
    since the first event.
    """
    events = sorted(events, key=lambda event: event.start)
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
    """Ranks on a circle, a line for each connection between two ranks, a dotted one to the store.

    `pairs` are the open connections, each listed once or from both ends.
    """
    pairs = {tuple(sorted(pair)) for pair in pairs}
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
    keys = [Patch(label="set: writes its own address", facecolor=INK)]
    for owner in owners:
        colour = rank_colour(owner)
        look = {"facecolor": tint(colour, 0.45), "edgecolor": colour, "hatch": rank_hatch(owner)}
        keys.append(Patch(label=f"waits for the address of rank {owner}", **look))
    figure.legend(handles=keys, loc="outside upper left", ncols=3, handlelength=1.4)


# Nodes and meshes


@style()
def nodes_plot(places: Sequence[tuple[int, int]], labels: Sequence[str] | None = None) -> Figure:
    """A frame for each node, with a box for each of its ranks, in the order of the local ranks.

    `places[rank]` is (node, local rank), as reported by the ranks. `labels[rank]` is written below
    the number of the rank; the default is "local 0" and so on. Raises ValueError for two ranks in
    one place.
    """
    if len(set(places)) < len(places):
        raise ValueError("Two ranks have the same place.")
    nodes = sorted({node for node, _ in places})
    widest = max(local for _, local in places) + 1
    across, down = min(widest, PER_ROW), -(-widest // PER_ROW)
    side_by_side = max(1, min(len(nodes), int((WIDTH - 0.2) // (across * BOX + 0.5))))
    lines = -(-len(nodes) // side_by_side)
    cell = (across + 0.55, down + 0.85)  # of a node, in boxes
    figure = Figure(
        (side_by_side * cell[0] * BOX, lines * cell[1] * BOX * 0.8), layout="constrained"
    )
    axes = figure.subplots()
    for index, node in enumerate(nodes):
        left, top = index % side_by_side * cell[0], index // side_by_side * cell[1]
        own = 1 + max(local for home, local in places if home == node)
        _frame(axes, left, top, min(own, PER_ROW) + 0.2, down + 0.5)
        axes.text(left + 0.12, top + 0.22, f"node {node}", va="center", fontweight="bold")
        for rank, (home, local) in enumerate(places):
            if home == node:
                text = labels[rank] if labels else f"local {local}"
                spot = left + 0.1 + local % PER_ROW, top + 0.4 + local // PER_ROW
                _box(axes, *spot, rank, f"rank {rank}", text)
    _finish(axes, side_by_side * cell[0], lines * cell[1])
    return figure


@style()
def mesh_plot(
    steps: Mapping[str, Sequence[Sequence]], along: Mapping[str, str] | None = None
) -> Figure:
    """A mesh of ranks, one panel for each step, with the value that each rank holds.

    `steps` maps a panel's title to the values of the mesh, row by row; ranks are numbered along the
    rows, as `init_device_mesh` does. `along` maps a title to "rows" or "columns": the groups to
    frame in that panel. Raises ValueError for rows of different lengths.
    """
    along = along or {}
    shapes = [np.shape(rows) for rows in steps.values()]
    box = min(BOX, (WIDTH - 0.2) / sum(columns + 0.45 for _, columns in shapes))
    widths = [columns + 0.45 for _, columns in shapes]
    figure = Figure(
        (sum(widths) * box, (max(rows for rows, _ in shapes) * 0.75 + 0.3) * box + 0.35),
        layout="constrained",
    )
    panels = figure.subplots(1, len(steps), squeeze=False, width_ratios=widths)[0]
    for axes, (title, values), (rows, columns) in zip(panels, steps.items(), shapes, strict=True):
        for row, of_row in enumerate(values):
            for column, value in enumerate(of_row):
                rank = row * columns + column
                _box(axes, column, row, rank, f"rank {rank}", str(value), size=10 * box / BOX)
        _frame_groups(axes, along.get(title), rows, columns)
        axes.set_title(title, fontsize=10.5 * max(0.8, box / BOX), loc="center")
        _finish(axes, columns, rows, margin=0.2)
    return figure


def _box(axes: Axes, x: float, y: float, rank: int, name: str, text: str, size: float = 10) -> None:
    """The box of one rank; (x, y) is its upper left corner, in boxes."""
    look = {"edgecolor": rank_colour(rank), "facecolor": tint(rank_colour(rank)), "linewidth": 1.8}
    axes.add_patch(Rectangle((x + 0.08, y + 0.08), 0.84, 0.84, **look))
    middle = {"ha": "center", "va": "center"}
    axes.text(x + 0.5, y + 0.33, name, fontsize=size, **middle)
    axes.text(x + 0.5, y + 0.68, text, fontsize=size, fontweight="bold", **middle)


def _frame(axes: Axes, x: float, y: float, width: float, height: float) -> None:
    look = {"boxstyle": "round,pad=0,rounding_size=0.12", "linewidth": 1.4}
    axes.add_patch(FancyBboxPatch((x, y), width, height, fill=False, edgecolor=INK, **look))


def _frame_groups(axes: Axes, along: str | None, rows: int, columns: int) -> None:
    """A dashed frame around each row or each column."""
    boxes = {
        None: [],
        "rows": [(0, row, columns, 1) for row in range(rows)],
        "columns": [(column, 0, 1, rows) for column in range(columns)],
    }[along]
    for x, y, width, height in boxes:
        look = {"boxstyle": "round,pad=-0.015,rounding_size=0.12", "linestyle": (0, (4, 2))}
        shape = FancyBboxPatch((x, y), width, height, fill=False, edgecolor=GROUP, **look)
        shape.set_linewidth(1.8)
        axes.add_patch(shape)


def _finish(axes: Axes, width: float, height: float, margin: float = 0.03) -> None:
    axes.set(xlim=(-margin, width + margin), ylim=(height + 0.03, -0.03), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
