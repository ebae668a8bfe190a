"""Copies to a GPU from ordinary and from pinned memory: a drawing, and their times."""

from __future__ import annotations

import time

import pandas as pd
import torch

from ddp_workbook import figures
from ddp_workbook.figures.palette import INK, series_colour, tint
from ddp_workbook.launcher.launch import launch

NO_GPU = "No GPU here, so nothing is measured: pinning is of use only for copies to a GPU."
PINNING_ALT = (
    "Two ways to copy a batch from the machine's memory to a GPU. "
    "Ordinary memory takes two copies: the CPU copies the batch into a small buffer of pinned "
    "memory, and the GPU fetches it from there; Python waits until the first copy is done. "
    "From pinned memory the GPU fetches the batch in one copy; with non_blocking=True Python does "
    "not wait."
)
MIDDLES = {"memory": 2.35, "buffer": 6.05, "GPU": 9.7}  # of the three columns
MEMORY_WIDTH, MEMORY_HEIGHT = 1.9, 0.78


def copy_to_gpu(pinned: bool, mebibytes: int = 256) -> tuple[float, float]:
    """Milliseconds until Python continues, and until the data are on the GPU; the best of three."""
    batch = torch.ones(mebibytes, 2**18, pin_memory=pinned)  # a row is one MiB
    there, seen = torch.empty_like(batch, device="cuda"), []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        there.copy_(batch, non_blocking=True)
        returned = time.perf_counter()
        torch.cuda.synchronize()
        seen.append((1e3 * (returned - start), 1e3 * (time.perf_counter() - start)))
    return min(seen[1:], key=lambda pair: pair[1])  # the first one also starts CUDA


def copies_to_gpu() -> pd.DataFrame | str:
    """A row for each kind of memory, for 256 MiB; a sentence on a machine without a GPU."""
    if not torch.cuda.is_available():
        return NO_GPU
    rows = {
        kind: launch(copy_to_gpu, pinned, ranks=1)[0]
        for kind, pinned in {"ordinary": False, "pinned": True}.items()
    }
    columns = ["ms until Python continues", "ms until the data are there"]
    return pd.DataFrame(rows, columns).T.round(2)


@figures.drawn
def pinning_plot() -> figures.Picture:
    """A line for ordinary memory, with its detour through a buffer, and one for pinned memory."""
    figure = figures.Figure((figures.WIDTH, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10.8), ylim=(0, 4.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    _memory(axes, 1.15, 7.25, "memory of the machine")
    _memory(axes, 8.55, 10.75, "memory of the GPU")
    _way_to_gpu(axes, 2.85, "ordinary\nmemory", pinned=False)
    _way_to_gpu(axes, 0.95, "pinned\nmemory", pinned=True)
    return figures.Picture(figure, PINNING_ALT)


def _memory(axes: figures.Axes, left: float, right: float, title: str) -> None:
    look = {"facecolor": "#f6f6f6", "edgecolor": series_colour(1), "linewidth": 1}
    axes.add_patch(figures.Rectangle((left, 0.08), right - left, 3.9, zorder=0, **look))
    axes.text(left, 4.12, title, weight="bold", va="bottom")


def _way_to_gpu(axes: figures.Axes, height: float, name: str, pinned: bool) -> None:
    axes.text(0, height, name, va="center", weight="bold")
    _memory_box(axes, "memory", height, "batch", hatched=pinned)
    _memory_box(axes, "GPU", height, "batch", hatched=False)
    if pinned:
        _arrow(axes, "memory", "GPU", height, "the GPU fetches it;\nPython need not wait", 5.0)
        return
    _memory_box(axes, "buffer", height, "pinned buffer\nof the driver", hatched=True)
    _arrow(axes, "memory", "buffer", height, "1. the CPU\ncopies", None)
    _arrow(axes, "buffer", "GPU", height, "2. the GPU\nfetches it", None)


def _memory_box(axes: figures.Axes, place: str, height: float, text: str, hatched: bool) -> None:
    """A block of memory; pinned memory is darker and has a heavy frame."""
    colour = series_colour(2) if hatched else series_colour(1)
    corner = (MIDDLES[place] - MEMORY_WIDTH / 2, height - MEMORY_HEIGHT / 2)
    look = {
        "facecolor": tint(colour, 0.35),
        "edgecolor": colour,
        "linewidth": 3 if hatched else 1.5,
    }
    axes.add_patch(figures.Rectangle(corner, MEMORY_WIDTH, MEMORY_HEIGHT, **look))
    axes.text(MIDDLES[place], height, text, ha="center", va="center", fontsize=9.5)


def _arrow(
    axes: figures.Axes, start: str, end: str, height: float, words: str, middle: float | None
) -> None:
    left, right = MIDDLES[start] + MEMORY_WIDTH / 2, MIDDLES[end] - MEMORY_WIDTH / 2
    look = {"arrowstyle": "-|>", "mutation_scale": 15, "color": INK, "linewidth": 1.6}
    axes.add_patch(
        figures.FancyArrowPatch((left, height), (right, height), shrinkA=2, shrinkB=2, **look)
    )
    middle = middle or (left + right) / 2
    axes.text(middle, height + 0.12, words, ha="center", va="bottom", fontsize=9.5)
