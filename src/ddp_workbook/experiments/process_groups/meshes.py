"""A mesh of ranks: sums along its rows and columns, its slices, and who is in which group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

import ddp_workbook
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint

BOX, HEAD = (1.2, 0.9), 0.56  # inches: the place of one rank, and of a title
GAP = 0.08  # inches between groups
WIDE = 4  # ranks in a row of a mesh whose steps do not fit side by side
# Of groups, and of ranks outside: no rank has these colours.
GROUPS = [tint(series_colour(index), 0.6) for index in (2, 4, 1, 3)]
ON_GROUP = {"facecolor": "white", "linewidth": 2.2}  # a rank's own fill would hide the group's
OUTSIDE = {"facecolor": "#f7f7f7", "edgecolor": "#9a9a9a"}
SHAPES = ("1 x 4", "2 x 2", "4 x 1")  # nodes x GPUs of each
ALONG = ("gpu, node", "gpu", "node")
SUM, GATHER, BROADCAST = "all_reduce", "all_gather", "broadcast"


def play_mesh() -> ddp_workbook.Play:
    """Four ranks as a mesh, with controls for its shape, the groups, and what they call."""
    return ddp_workbook.play(
        run_on_mesh,
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


def run_on_mesh(shape: str, along: str, collective: str) -> list[list[int]]:
    """What this rank holds before and after the collective in each group, one after the other."""
    device = setup()
    nodes, gpus = map(int, shape.split(" x "))
    mesh = init_device_mesh(device.type, (nodes, gpus), mesh_dim_names=("node", "gpu"))
    x = torch.tensor([dist.get_rank() + 1], device=device)
    values = [x.tolist()]
    for dimension in along.split(", "):
        x = call(collective, x, mesh.get_group(dimension))
        values.append(x.tolist())
    cleanup()
    return values


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
    meshes = {
        '["replicate"]': mesh["replicate"],
        '["shard"]': mesh["shard"],
        '["tensor"]': mesh["tensor"],
        '["replicate", "shard"]': mesh["replicate", "shard"],
        '["shard", "tensor"]': mesh["shard", "tensor"],
    }
    ranks = {words: submesh.mesh.tolist() for words, submesh in meshes.items()}
    cleanup()
    return ranks


def count_groups(slices_of: Sequence[Mapping[str, list]]) -> dict[str, Any]:
    """The groups of each rank and of all ranks together, the world included.

    `slices_of[rank]` is what `slices` returned there. A slice with one name is a group.
    """
    own = [{tuple(of[name]) for name in of if "," not in name} for of in slices_of]
    return {
        "of each rank": [len(groups) + 1 for groups in own],
        "altogether": len(set().union(*own)) + 1,
    }


# The pictures


@figures.house_style
def mesh_plot(
    of_ranks: Sequence[Sequence[Sequence[int]]],
    shape: str,
    along: str,
    collective: str,
    **_: object,
) -> figures.Picture:
    """What each rank of a mesh held before a collective and after it; a group is one plain area.

    `of_ranks[rank]` has its numbers at each step. A wide mesh has its steps one below the other.
    """
    columns = int(shape.split(" x ")[1])
    rows, steps = len(of_ranks) // columns, ["", *along.split(", ")]
    wide, high = columns * BOX[0] + 0.4, HEAD + rows * BOX[1] + 0.15
    stacked = columns >= WIDE
    size = (wide, len(steps) * high) if stacked else (len(steps) * wide, high)
    axes, words = figures.sheet(*size), []
    for number, name in enumerate(steps):
        left, top = (0.1, number * high) if stacked else (0.1 + number * wide, 0.0)
        title = f'{collective}\nalong "{name}"' if name else "before"
        middle = left + columns * BOX[0] / 2, top + HEAD / 2
        axes.text(*middle, title, ha="center", va="center", size=11.5, weight="bold")
        _fill_groups(axes, (left, top + HEAD), name, rows, columns)
        values = [", ".join(map(str, of_rank[number])) for of_rank in of_ranks]
        for rank, value in enumerate(values):
            corner = left + rank % columns * BOX[0], top + HEAD + rank // columns * BOX[1]
            rank_box(axes, corner, BOX, rank, f"rank {rank}", value, **ON_GROUP)
        groups = {"": "", "gpu": ", each row a group", "node": ", each column a group"}[name]
        words.append(f"{title}{groups}: {'; '.join(values)}".replace("\n", " "))
    return figures.Picture(
        axes.figure,
        f"The ranks 0 to {len(of_ranks) - 1} as a mesh of {shape.replace(' x ', ' by ')}. Their "
        f"values {'. '.join(words)}.",
    )


def rank_box(
    axes: figures.Axes,
    corner: tuple[float, float],
    size: tuple[float, float],
    rank: int,
    name: str,
    text: str,
    **frame: Any,
) -> None:
    """A box for one rank with two lines of words, a little smaller than its place."""
    (left, top), (width, height) = corner, size
    inside = 0.8 * width, 0.76 * height
    place = left + 0.1 * width, top + 0.12 * height
    figures.box(axes, place, inside, f"{name}\n", rank, frame=frame, fontsize=11)
    middle = left + width / 2, top + 0.68 * height
    axes.text(*middle, text, ha="center", va="center", size=11, weight="bold")


def _fill_groups(
    axes: figures.Axes, corner: tuple[float, float], along: str, rows: int, columns: int
) -> None:
    """An area under each row (along "gpu") or each column (along "node"), of one colour."""
    (left, top), (width, height) = corner, BOX
    size = (columns * width, height) if along == "gpu" else (width, rows * height)
    inside = size[0] - GAP, size[1] - GAP
    for number in range({"": 0, "gpu": rows, "node": columns}[along]):
        right, down = (0, number * height) if along == "gpu" else (number * width, 0)
        look = {"facecolor": GROUPS[number % len(GROUPS)], "edgecolor": "none"}
        figures.box(axes, (left + right + GAP / 2, top + down + GAP / 2), inside, frame=look)


@figures.house_style
def slices_plot(
    rank: int, shape: tuple[int, int, int], slices: Mapping[str, Sequence]
) -> figures.Picture:
    """One panel for each slice of a mesh of three dimensions: who is in it together with `rank`.

    A row of a panel is one index of the first dimension. `slices` maps a panel's title to the ranks
    of the slice, nested as the mesh has them. Ranks outside are grey.
    """
    rows, columns = shape[0], shape[1] * shape[2]
    across = min(3, len(slices))
    pitch = figures.WIDTH / across
    side = pitch / (columns + 0.6)
    high = 0.35 + (rows + 0.2) * side
    axes = figures.sheet(figures.WIDTH, -(-len(slices) // across) * high)
    for place, (title, ranks) in enumerate(slices.items()):
        left, top = place % across * pitch + 0.1, place // across * high
        middle = left + columns * side / 2, top + 0.18
        axes.text(*middle, title, ha="center", va="center", size=10, weight="bold")
        members = set(np.ravel(ranks).tolist())
        for candidate in range(rows * columns):
            inside, is_own = candidate in members, candidate == rank
            corner = left + candidate % columns * side, top + 0.35 + candidate // columns * side
            figures.box(
                axes,
                corner,
                (0.82 * side, 0.82 * side),
                candidate,
                candidate if inside else None,
                frame={"linewidth": 3.4 if is_own else 1.5} | ({} if inside else OUTSIDE),
                fontsize=11,
                weight="bold" if is_own else "normal",
                color=INK if inside else "#6a6a6a",
            )
    parts = [f"{title}: {np.ravel(ranks).tolist()}" for title, ranks in slices.items()]
    return figures.Picture(
        axes.figure,
        f"One panel for each slice, with the ranks that rank {rank} finds in it in colour and all "
        f"others in grey. {'; '.join(parts)}.",
    )
