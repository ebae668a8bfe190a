"""A mesh of ranks: the values that they hold, and the groups along its rows and columns."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from ddp_workbook.figures.palette import rank_colour, tint
from ddp_workbook.figures.style import WIDTH, style

BOX = 0.92  # inches across one rank, where there is room
GROUP = "#5c5c5c"  # of groups: no rank has this colour
OUTSIDE = "#9a9a9a"
SUMS = ("before", 'after the sum along "gpu"', 'after the sum along "node"')


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
                rank_box(axes, column, row, rank, f"rank {rank}", str(value), size=10 * box / BOX)
        _frame_groups(axes, along.get(title), rows, columns)
        axes.set_title(title, fontsize=10.5 * max(0.8, box / BOX), loc="center")
        finish(axes, columns, rows, margin=0.2)
    return figure


def two_sums_plot(held: Sequence[Sequence[int]], columns: int) -> Figure:
    """Three panels: what each rank of a mesh held before, between and after two sums.

    `held[rank]` are its three values; `columns` is the number of ranks in a row.
    """
    steps = {
        title: [
            [one[step] for one in held[first : first + columns]]
            for first in range(0, len(held), columns)
        ]
        for step, title in enumerate(SUMS)
    }
    return mesh_plot(steps, {SUMS[1]: "rows", SUMS[2]: "columns"})


def alt_text_of_two_sums(held: Sequence[Sequence[int]], columns: int) -> str:
    """The same in words."""
    frames = ("", ", with a frame around each row", ", with a frame around each column")
    panels = [
        f"{title}{frame}: {', '.join(str(one[step]) for one in held)}"
        for step, (title, frame) in enumerate(zip(SUMS, frames, strict=True))
    ]
    rows = len(held) // columns
    return (
        f"The ranks 0 to {len(held) - 1} as a table of {rows} rows and {columns} columns, three "
        f"times. Their values {'; '.join(panels)}."
    )


@style()
def slices_plot(rank: int, shape: tuple[int, int, int], slices: Mapping[str, Sequence]) -> Figure:
    """One panel for each slice of a mesh of three dimensions: who is in it together with `rank`.

    A row of a panel is one index of the first dimension. `slices` maps a panel's title to the ranks
    of the slice, nested as the mesh has them. Ranks outside are grey.
    """
    rows, columns = shape[0], shape[1] * shape[2]
    across = min(3, len(slices))
    down = -(-len(slices) // across)
    size = (WIDTH, down * ((rows + 0.2) * WIDTH / across / (columns + 0.6) + 0.3))
    figure = Figure(size, layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (title, ranks) in zip(panels, slices.items(), strict=False):
        members = set(np.ravel(ranks).tolist())
        for other in range(rows * columns):
            spot = (other % columns, other // columns)
            inside = other in members
            _small_box(axes, spot, other, inside, chosen=other == rank)
        axes.set_title(title, fontsize=10, loc="center")
    for axes in panels:
        axes.set_aspect("equal")
        finish(axes, columns, rows)
    return figure


def alt_text_of_slices(rank: int, slices: Mapping[str, Sequence]) -> str:
    """The same in words."""
    parts = [f"{title}: {np.ravel(ranks).tolist()}" for title, ranks in slices.items()]
    return (
        f"One panel for each slice, with the ranks that rank {rank} finds in it in colour and all "
        f"others in grey. {'; '.join(parts)}."
    )


def _small_box(axes: Axes, spot: tuple[int, int], rank: int, inside: bool, *, chosen: bool) -> None:
    colour = rank_colour(rank) if inside else OUTSIDE
    look = {"edgecolor": colour, "facecolor": tint(colour, 0.25 if inside else 0.08)}
    (x, y), weight = spot, "bold" if chosen else "normal"
    axes.add_patch(
        Rectangle((x + 0.1, y + 0.1), 0.8, 0.8, linewidth=3.4 if chosen else 1.5, **look)
    )
    ink = {} if inside else {"color": "#6a6a6a"}
    axes.text(x + 0.5, y + 0.5, str(rank), ha="center", va="center", fontweight=weight, **ink)


def rank_box(
    axes: Axes, x: float, y: float, rank: int, name: str, text: str, size: float = 10
) -> None:
    """The box of one rank; (x, y) is its upper left corner, in boxes."""
    look = {"edgecolor": rank_colour(rank), "facecolor": tint(rank_colour(rank)), "linewidth": 1.8}
    axes.add_patch(Rectangle((x + 0.08, y + 0.08), 0.84, 0.84, **look))
    middle = {"ha": "center", "va": "center"}
    axes.text(x + 0.5, y + 0.33, name, fontsize=size, **middle)
    axes.text(x + 0.5, y + 0.68, text, fontsize=size, fontweight="bold", **middle)


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


def finish(axes: Axes, width: float, height: float, margin: float = 0.03) -> None:
    """No axes, and room for the boxes."""
    axes.set(xlim=(-margin, width + margin), ylim=(height + 0.03, -0.03), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
