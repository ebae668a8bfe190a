"""Four ranks as a mesh, fully sharded in one dimension and tensor parallel in the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

import ddp_workbook
from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.model_parallel import COLUMNS_THEN_ROWS, SEED
from ddp_workbook.experiments.model_parallel.tensor_parallel import CALLS
from manyranks import figures
from manyranks.figures.palette import INK, series_colour, tint
from manyranks.recording.collectives import run_and_record

WIDTH, DEPTH = 64, 2
SAMPLES = (32, 128, 512)  # of all ranks
DATA, TENSOR = "data", "tensor"
ORDERS = (f"{DATA}, {TENSOR}", f"{TENSOR}, {DATA}")
COLOURS = {DATA: 4, TENSOR: 3}
# A slow one, so that the network counts beside the cores; its links differ as NVLink and Ethernet.
NETWORK = "100 Mbit/s, 0.2 ms; 2 nodes; inside 20 Gbit/s, 10 µs"
STEPS = 3  # that are timed


class MeshRun(NamedTuple):
    """A step on the mesh: a row for each pair of ranks and dimension, and whether it was right."""

    traffic: pd.DataFrame  # ranks (as "0,1"), dimension, calls, kB that each sends in a ring
    difference: float  # of the gradients from those of one process, at most
    seconds: Mapping[str, float]  # of a step, with each order


def steps(order: str, samples: int) -> tuple[float, dict[str, float]]:
    """How far a step's gradients are off on this mesh, and the seconds of a step on either."""
    device = setup()
    logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)  # of full_tensor's calls
    torch.manual_seed(SEED)
    alone = DigitsTransformer(WIDTH, DEPTH).to(device)
    digits = DigitsDataset()
    images, labels = digits.images[:samples].to(device), digits.labels[:samples].to(device)
    F.cross_entropy(alone(images), labels).backward()
    model, step = on_mesh(order, images, labels)
    step()
    dist.barrier()  # what the comparison sends comes after it
    expected = dict(alone.named_parameters())
    furthest = max(
        (parameter.grad.full_tensor() - expected[name].grad).abs().max().item()
        for name, parameter in model.named_parameters()
    )
    seconds = {each: fastest(on_mesh(each, images, labels)[1]) for each in ORDERS}
    cleanup()
    return furthest, seconds


def on_mesh(order: str, images: Tensor, labels: Tensor) -> tuple[nn.Module, Callable[[], None]]:
    """A transformer that is cut by `tensor` and sharded over `data`, and a step with it."""
    mesh = init_device_mesh(images.device.type, (2, 2), mesh_dim_names=tuple(order.split(", ")))
    torch.manual_seed(SEED)
    model = DigitsTransformer(WIDTH, DEPTH).to(images.device)
    for block in model.blocks:
        parallelize_module(block, mesh[TENSOR], COLUMNS_THEN_ROWS)
        fully_shard(block, mesh=mesh[DATA])
    fully_shard(model, mesh=mesh[DATA])
    mine = slice(mesh.get_local_rank(DATA), None, 2)
    return model, lambda: F.cross_entropy(model(images[mine]), labels[mine]).backward()


def fastest(step: Callable[[], None]) -> float:
    """Seconds of the fastest of some steps; the first one prepares."""
    seconds = []
    for _ in range(1 + STEPS):
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def run(order: str, samples: int) -> MeshRun:
    """The steps on four ranks, the first of them recorded."""
    results, wire = run_and_record(steps, order, samples, ranks=4, network=NETWORK)
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
    differences, seconds = zip(*results, strict=True)
    slowest = {each: max(one[each] for one in seconds) for each in ORDERS}
    return MeshRun(pd.DataFrame(rows, columns=columns), max(differences), slowest)


def first_barriers(wire: pd.DataFrame) -> Mapping[int, int]:
    """For each rank the place of its first barrier."""
    return wire[wire["op"] == "barrier"].groupby("rank")["seq"].min().to_dict()


def dimension_of(ranks: str, order: str) -> str:
    """Neighbours differ in the last dimension of the mesh."""
    first, second = map(int, ranks.split(","))
    return order.split(", ")[1 if second - first == 1 else 0]


@figures.house_style
def mesh_plot(found: MeshRun, order: str, **_: object) -> figures.Picture:
    """Two nodes of two ranks, and a line for each pair that has talked, wider for more bytes; below
    them the seconds of a step."""
    axes = figures.sheet(figures.WIDTH, 4.75)
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
    steps = draw_steps(axes, found.seconds, order, top=3.8)
    return figures.Picture(axes.figure, f"{words} {equal} {'; '.join(pairs)}. {steps}")


def draw_steps(axes: figures.Axes, seconds: Mapping[str, float], order: str, top: float) -> str:
    """A bar for a step with each order, the one that is drawn above in full colour; in words."""
    left, inches, words = 2.6, 4.2, []
    for row, (name, time_of_step) in enumerate(seconds.items()):
        inside = name.split(", ")[1]
        label = f"a step with {inside} in a node"
        place = (left, top + 0.42 * row)
        length = inches * time_of_step / max(seconds.values())
        colour = series_colour(COLOURS[inside])
        face = tint(colour, 0.75 if name == order else 0.25)
        figures.box(axes, place, (length, 0.3), frame={"facecolor": face, "edgecolor": colour})
        middle = place[1] + 0.15
        axes.text(left - 0.12, middle, label, ha="right", va="center", size=10)
        axes.text(left + length + 0.1, middle, f"{1e3 * time_of_step:.0f} ms", va="center", size=10)
        words.append(f"{label}: {1e3 * time_of_step:.0f} ms")
    return f"{'; '.join(words)}."


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
