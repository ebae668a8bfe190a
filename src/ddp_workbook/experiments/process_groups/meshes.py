"""A mesh of ranks: sums along its rows and columns, its slices, and who is in which group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import ddp_workbook
from ddp_workbook import figures
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.figures.palette import tint
from ddp_workbook.rank_colours import rank_colour

if TYPE_CHECKING:
    from ddp_workbook.notebook.play import Play

BOX = 0.92  # inches across one rank, where there is room
BREAK = "\n"
WIDE = 4  # ranks in a row of a mesh that needs the page for itself
GROUP = "#5c5c5c"  # of groups: no rank has this colour
OUTSIDE = "#9a9a9a"
SHAPES = ("1 x 4", "2 x 2", "4 x 1")  # nodes x GPUs of each
ALONG = ("gpu, node", "gpu", "node")
SUM, GATHER, BROADCAST = "all_reduce", "all_gather", "broadcast"


def play_mesh() -> Play:
    """Four ranks as a mesh, with controls for its shape, the groups, and what they call."""
    return ddp_workbook.play(
        on_a_mesh,
        mesh_plot,
        ranks=4,
        stills=[
            {"shape": "1 x 4"},
            {"shape": "4 x 1"},
            {"collective": GATHER},
            {"along": "node"},
            {"along": "gpu", "collective": BROADCAST},
        ],
        shape=ddp_workbook.choice("nodes x GPUs of each", SHAPES, "2 x 2"),
        along=ddp_workbook.choice("along", ALONG),
        collective=ddp_workbook.choice("collective", (SUM, GATHER, BROADCAST)),
    )


def on_a_mesh(shape: str, along: str, collective: str) -> list[list[int]]:
    """What this rank holds before and after the collective in each group, one after the other."""
    device = setup()
    nodes, gpus = map(int, shape.split(" x "))
    mesh = init_device_mesh(device.type, (nodes, gpus), mesh_dim_names=("node", "gpu"))
    x = torch.tensor([dist.get_rank() + 1], device=device)
    held = [x.tolist()]
    for dimension in along.split(", "):
        x = call(collective, x, mesh.get_group(dimension))
        held.append(x.tolist())
    cleanup()
    return held


def call(collective: str, x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """What one collective of the group makes of this rank's `x`."""
    if collective == BROADCAST:
        dist.broadcast(x, group=group, group_src=0)
    elif collective == GATHER:
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x, group=group)
        x = torch.cat(parts)
    else:
        dist.all_reduce(x, group=group)
    return x


def slices() -> dict[str, list]:
    """The ranks of some slices of a mesh of 2 x 2 x 2, as this rank finds them."""
    device = setup()
    names = ("replicate", "shard", "tensor")
    mesh = init_device_mesh(device.type, (2, 2, 2), mesh_dim_names=names)
    found = {
        '["replicate"]': mesh["replicate"],
        '["shard"]': mesh["shard"],
        '["tensor"]': mesh["tensor"],
        '["replicate", "shard"]': mesh["replicate", "shard"],
        '["shard", "tensor"]': mesh["shard", "tensor"],
    }
    ranks = {words: one.mesh.tolist() for words, one in found.items()}
    cleanup()
    return ranks


def how_many_groups(slices_of: Sequence[Mapping[str, list]]) -> dict[str, Any]:
    """The groups of each rank and of all ranks together, the world included.

    `slices_of[rank]` is what `slices` returned there. A slice with one name is a group.
    """
    own = [{tuple(of[name]) for name in of if "," not in name} for of in slices_of]
    return {"of each rank": [len(one) + 1 for one in own], "altogether": len(set().union(*own)) + 1}


# The pictures


@figures.drawn
def mesh_plot(
    held: Sequence[Sequence[Sequence[int]]], shape: str, along: str, collective: str, **_: object
) -> figures.Picture:
    """What each rank of a mesh held before a collective and after it, the groups framed.

    `held[rank]` has its numbers at each step.
    """
    columns = int(shape.split(" x ")[1])
    names = along.split(", ")
    titles = ["before", *(f'{collective}\nalong "{name}"' for name in names)]
    frames = dict(
        zip(titles[1:], ("rows" if name == "gpu" else "columns" for name in names), strict=True)
    )
    texts = {
        title: [", ".join(map(str, of_rank[step])) for of_rank in held]
        for step, title in enumerate(titles)
    }
    steps = {
        title: [values[first : first + columns] for first in range(0, len(held), columns)]
        for title, values in texts.items()
    }
    framed = {title: f", with a frame around each of the {frames[title]}" for title in frames}
    panels = [
        f"{title.replace(BREAK, ' ')}{framed.get(title, '')}: {'; '.join(texts[title])}"
        for title in titles
    ]
    return figures.Picture(
        mesh_figure(steps, frames),
        f"The ranks 0 to {len(held) - 1} as a mesh of {shape.replace(' x ', ' by ')}. Their values "
        f"{'. '.join(panels)}.",
    )


@figures.drawn
def slices_plot(
    rank: int, shape: tuple[int, int, int], slices: Mapping[str, Sequence]
) -> figures.Picture:
    """One panel for each slice of a mesh of three dimensions: who is in it together with `rank`.

    A row of a panel is one index of the first dimension. `slices` maps a panel's title to the ranks
    of the slice, nested as the mesh has them. Ranks outside are grey.
    """
    rows, columns = shape[0], shape[1] * shape[2]
    across = min(3, len(slices))
    down = -(-len(slices) // across)
    size = (figures.WIDTH, down * ((rows + 0.2) * figures.WIDTH / across / (columns + 0.6) + 0.3))
    figure = figures.Figure(size, layout="constrained")
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
    parts = [f"{title}: {np.ravel(ranks).tolist()}" for title, ranks in slices.items()]
    return figures.Picture(
        figure,
        f"One panel for each slice, with the ranks that rank {rank} finds in it in colour and all "
        f"others in grey. {'; '.join(parts)}.",
    )


def mesh_figure(
    steps: Mapping[str, Sequence[Sequence]], along: Mapping[str, str] | None = None
) -> figures.Figure:
    """A mesh of ranks, one panel for each step, with the value that each rank holds.

    `steps` maps a panel's title to the values of the mesh, row by row; ranks are numbered along the
    rows, as `init_device_mesh` does. `along` maps a title to "rows" or "columns": the groups to
    frame in that panel. Raises ValueError for rows of different lengths.
    """
    along = along or {}
    shapes = [np.shape(rows) for rows in steps.values()]
    widths, tall = [columns + 0.45 for _, columns in shapes], max(rows for rows, _ in shapes)
    # A wide mesh has its steps one below the other.
    across = len(steps) if max(widths) < WIDE else 1
    down = len(steps) // across
    box = min(BOX, (figures.WIDTH - 0.2) / sum(widths[:across]))
    size = sum(widths[:across]) * box, down * ((tall * 0.75 + 0.3) * box + 0.55)
    figure = figures.Figure(size, layout="constrained")
    ratios = widths[:across]
    panels = figure.subplots(down, across, squeeze=False, width_ratios=ratios).ravel()
    for axes, (title, values), (rows, columns) in zip(panels, steps.items(), shapes, strict=True):
        for row, of_row in enumerate(values):
            for column, value in enumerate(of_row):
                rank = row * columns + column
                rank_box(axes, column, row, rank, f"rank {rank}", str(value), size=10 * box / BOX)
        _frame_groups(axes, along.get(title), rows, columns)
        axes.set_title(title, fontsize=10.5 * max(0.8, box / BOX), loc="center")
        finish(axes, columns, rows, margin=0.2)
    return figure


def _small_box(
    axes: figures.Axes, spot: tuple[int, int], rank: int, inside: bool, *, chosen: bool
) -> None:
    colour = rank_colour(rank) if inside else OUTSIDE
    look = {"edgecolor": colour, "facecolor": tint(colour, 0.25 if inside else 0.08)}
    (x, y), weight = spot, "bold" if chosen else "normal"
    axes.add_patch(
        figures.Rectangle((x + 0.1, y + 0.1), 0.8, 0.8, linewidth=3.4 if chosen else 1.5, **look)
    )
    ink = {} if inside else {"color": "#6a6a6a"}
    axes.text(x + 0.5, y + 0.5, str(rank), ha="center", va="center", fontweight=weight, **ink)


def rank_box(
    axes: figures.Axes, x: float, y: float, rank: int, name: str, text: str, size: float = 10
) -> None:
    """The box of one rank; (x, y) is its upper left corner, in boxes."""
    look = {"edgecolor": rank_colour(rank), "facecolor": tint(rank_colour(rank)), "linewidth": 1.8}
    axes.add_patch(figures.Rectangle((x + 0.08, y + 0.08), 0.84, 0.84, **look))
    middle = {"ha": "center", "va": "center"}
    axes.text(x + 0.5, y + 0.33, name, fontsize=size, **middle)
    axes.text(x + 0.5, y + 0.68, text, fontsize=size, fontweight="bold", **middle)


def _frame_groups(axes: figures.Axes, along: str | None, rows: int, columns: int) -> None:
    """A dashed frame around each row or each column."""
    boxes = {
        None: [],
        "rows": [(0, row, columns, 1) for row in range(rows)],
        "columns": [(column, 0, 1, rows) for column in range(columns)],
    }[along]
    for x, y, width, height in boxes:
        look = {"boxstyle": "round,pad=-0.015,rounding_size=0.12", "linestyle": (0, (4, 2))}
        shape = figures.FancyBboxPatch((x, y), width, height, fill=False, edgecolor=GROUP, **look)
        shape.set_linewidth(1.8)
        axes.add_patch(shape)


def finish(axes: figures.Axes, width: float, height: float, margin: float = 0.03) -> None:
    """No axes, and room for the boxes."""
    axes.set(xlim=(-margin, width + margin), ylim=(height + 0.03, -0.03), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
