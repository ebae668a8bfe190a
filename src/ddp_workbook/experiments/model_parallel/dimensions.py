"""Four ranks as a mesh, fully sharded in one dimension and tensor parallel in the other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.model_parallel import COLUMNS_THEN_ROWS, SEED
from ddp_workbook.experiments.model_parallel.tensor_parallel import CALLS
from manyranks import figures
from manyranks.figures.palette import INK, series_colour
from manyranks.recording.collectives import run_and_record

WIDTH, DEPTH = 64, 2
SAMPLES = (32, 128, 512)  # of all ranks
DATA, TENSOR = "data", "tensor"
ORDERS = (f"{DATA}, {TENSOR}", f"{TENSOR}, {DATA}")
COLOURS = {DATA: 4, TENSOR: 3}


class MeshRun(NamedTuple):
    """A step on the mesh: a row for each pair of ranks and dimension, and whether it was right."""

    traffic: pd.DataFrame  # ranks (as "0,1"), dimension, calls, kB that each sends in a ring
    difference: float  # of the gradients from those of one process, at most


def step(order: str, samples: int) -> float:
    """A step of the transformer, cut by `tensor` and sharded over `data`; how far it is off."""
    device = setup()
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)  # of full_tensor's calls
    mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=tuple(order.split(", ")))
    torch.manual_seed(SEED)
    alone = DigitsTransformer(WIDTH, DEPTH).to(device)
    torch.manual_seed(SEED)
    model = DigitsTransformer(WIDTH, DEPTH).to(device)
    digits = DigitsDataset()
    images, labels = digits.images[:samples].to(device), digits.labels[:samples].to(device)
    F.cross_entropy(alone(images), labels).backward()
    for block in model.blocks:
        parallelize_module(block, mesh[TENSOR], COLUMNS_THEN_ROWS)
        fully_shard(block, mesh=mesh[DATA])
    fully_shard(model, mesh=mesh[DATA])
    mine = slice(mesh.get_local_rank(DATA), None, 2)
    F.cross_entropy(model(images[mine]), labels[mine]).backward()
    dist.barrier()  # what the comparison sends comes after it
    expected = dict(alone.named_parameters())
    furthest = max(
        (parameter.grad.full_tensor() - expected[name].grad).abs().max().item()
        for name, parameter in model.named_parameters()
    )
    cleanup()
    return furthest


def run(order: str, samples: int) -> MeshRun:
    """The step on four ranks, recorded."""
    results, wire = run_and_record(step, order, samples, ranks=4)
    of_step = wire[wire["seq"] < wire["rank"].map(first_barriers(wire))]
    rows = []
    for group in sorted({group for group in of_step["group"] if group != "default"}):
        ranks = group.removeprefix("ranks ")
        first = int(ranks.split(",")[0])
        calls = of_step[(of_step["group"] == group) & (of_step["rank"] == first)]
        calls = calls[calls["op"].isin(CALLS)]
        # In a ring of two, each sends half of the full tensor, in an all-reduce twice.
        full = calls[["bytes", "received"]].max(axis=1) * calls["op"].map(CALLS)
        dimension = dimension_of(ranks, order)
        rows.append((ranks, dimension, len(calls), full.sum() / 2 / 1e3))
    columns = ["ranks", "dimension", "calls", "kB sent by a rank in a ring"]
    return MeshRun(pd.DataFrame(rows, columns=columns), max(results))


def first_barriers(wire: pd.DataFrame) -> Mapping[int, int]:
    """For each rank the place of its first barrier."""
    return wire[wire["op"] == "barrier"].groupby("rank")["seq"].min().to_dict()


def dimension_of(ranks: str, order: str) -> str:
    """Neighbours differ in the last dimension of the mesh."""
    first, second = map(int, ranks.split(","))
    return order.split(", ")[1 if second - first == 1 else 0]


@figures.house_style
def mesh_plot(found: MeshRun, order: str, **_: object) -> figures.Picture:
    """Two nodes of two ranks, and a line for each pair that has talked, wider for more bytes."""
    axes = figures.sheet(figures.WIDTH, 3.7)
    places = {0: (2.1, 0.9), 1: (2.1, 2.4), 2: (6.1, 0.9), 3: (6.1, 2.4)}
    size = (1.0, 0.5)
    for node, left in enumerate((1.35, 5.35)):
        frame = {"facecolor": "white", "linestyle": "--", "zorder": 0.2}
        figures.box(axes, (left, 0.45), (1.5, 2.5), frame=frame)
        axes.text(left + 0.75, 0.3, f"node {node}", ha="center", va="center", size=10)
    column = "kB sent by a rank in a ring"
    for pair in found.traffic.to_dict("records"):
        (x, y), (to_x, to_y) = (places[int(rank)] for rank in pair["ranks"].split(","))
        colour = series_colour(COLOURS[pair["dimension"]])
        width = 1 + 0.55 * pair[column] ** 0.5
        axes.plot((x, to_x), (y, to_y), color=colour, linewidth=width, zorder=0.5)
        inside = x == to_x
        words = f"{pair['dimension']}: {pair['calls']} calls, {pair[column]:.0f} kB"
        where = {"ha": "center", "va": "center", "size": 10, "color": INK}
        card = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        middle = ((x + to_x) / 2, (y + to_y) / 2)
        axes.text(*middle, words.replace(": ", "\n", 1) if inside else words, bbox=card, **where)
    for rank, (x, y) in places.items():
        figures.box(
            axes, (x - size[0] / 2, y - size[1] / 2), size, f"rank {rank}", rank, fontsize=11
        )
    between = found.traffic[found.traffic["ranks"].isin(["0,2", "1,3"])][column].sum()
    inside = found.traffic[column].sum() - between
    equal = f"The gradients differ from one process by {found.difference:.0e} at most."
    words = f"Mesh ({order}): {inside:.0f} kB inside the nodes, {between:.0f} kB between them."
    axes.text(0.1, 3.2, words, va="center", size=10.5, weight="bold")
    axes.text(0.1, 3.45, equal, va="center", size=10.5)
    pairs = [
        f"ranks {p['ranks']}, {p['dimension']}: {p['calls']} calls, {p[column]:.0f} kB"
        for p in found.traffic.to_dict("records")
    ]
    return figures.Picture(axes.figure, f"{words} {equal} {'; '.join(pairs)}.")


def play_order() -> ddp_workbook.Play:
    """The same step with either order of the dimensions, and with more or fewer samples."""
    return ddp_workbook.play(
        run,
        mesh_plot,
        ranks=None,
        stills=[{"samples": 32}, {"samples": 512}, {"order": ORDERS[1]}],
        order=ddp_workbook.choice("dimensions", ORDERS, ORDERS[0]),
        samples=ddp_workbook.slider("samples of all ranks", SAMPLES, 128),
    )
