"""A typed schedule on real ranks: when each cell ran, what was in memory, and the gradients.

The stages are those of chapter 11's program, of one block each, and PyTorch runs the schedule.
Because the ranks of a page share a few cores, each cell is made to last for its time of `UNIT_S`:
the rank computes, and sleeps for what is left. So a measured bubble is that of the schedule, and
not that of the cores.
"""

from __future__ import annotations

import logging
import textwrap
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage

from ddp_workbook.chapters.digits import DigitsDataset, DigitsTransformer
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.chapters.model_parallel import SEED, Stage
from ddp_workbook.experiments.model_parallel.saved_tensors import SavedTensors
from ddp_workbook.experiments.model_parallel.schedules import schedule_of
from ddp_workbook.judging.pipeline_runs import load, rows_for_torch
from ddp_workbook.judging.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    HOLES,
    INPUTS,
    UNITS,
    WEIGHTS,
    Cell,
    Schedule,
    Timed,
    idle_share,
    most_in_flight,
    parse,
    read,
    split,
)
from manyranks import figures
from manyranks.figures.palette import series_colour, series_look, tint
from manyranks.launcher.launch import launch

UNIT_S = 0.01  # seconds of a forward
TIMEOUT_S = 20.0  # of a run, which takes one second
ROWS, WIDTH = 8, 32  # rows of a micro-batch
EQUAL = 1e-5  # a difference that is rounding; a wrong order gives more than 1e-3
KINDS = {
    FORWARD: "forward",
    BACKWARD: "backward",
    INPUTS: "I: backward of the inputs",
    WEIGHTS: "W: of the weights",
}


class RankRun(NamedTuple):
    """What came of a schedule on one rank."""

    events: list[Timed]
    held: list[int]  # bytes that autograd kept for backward, after each event
    in_flight: int  # micro-batches of all its stages that were held at once, at most
    differences: dict[int, float]  # of each stage's gradients from those of one process, at most


class TimedStage(PipelineStage):
    """A stage that notes when it computes, and lasts as long as its cell should."""

    events: list[Timed]
    held: list[int]
    saved: SavedTensors
    unit = 0.0

    def forward_one_chunk(self, number: int, *args: Any, **kwargs: Any) -> Any:
        """A cell F."""
        with self.saved.watch():
            return self._last(FORWARD, number, super().forward_one_chunk, *args, **kwargs)

    def backward_one_chunk(
        self, number: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> Any:
        """A cell B or I."""
        kind, run = BACKWARD if full_backward else INPUTS, super().backward_one_chunk
        return self._last(kind, number, run, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, number: int, *args: Any, **kwargs: Any) -> Any:
        """A cell W."""
        return self._last(WEIGHTS, number, super().backward_weight_one_chunk, *args, **kwargs)

    def _last(self, kind: str, number: int, run: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.monotonic()
        result = run(number, *args, **kwargs)
        time.sleep(max(0.0, start + UNITS[kind] * self.unit - time.monotonic()))
        cell = Cell(kind, self.stage_index, number)
        self.events.append(Timed(dist.get_rank(), cell, start, time.monotonic()))
        self.held.append(self.saved.bytes)
        return result


def run_rank(
    cells: Sequence[Sequence[str]],
    stage_ranks: Sequence[int],
    micro_batches: int,
    unit: float,
    blocks: int = 0,
) -> RankRun:
    """Two steps of the schedule, the second one noted; `cells` as PyTorch writes them.

    Without a number of blocks, a stage has one.
    """
    device = setup()
    events: list[Timed] = []
    held: list[int] = []
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
    torch.manual_seed(SEED)
    model = DigitsTransformer(WIDTH, blocks or len(stage_ranks)).to(device)
    saved = SavedTensors(model.parameters())
    digits, rows = DigitsDataset(), ROWS * micro_batches
    images, labels = digits.images[:rows].to(device), digits.labels[:rows].to(device)
    F.cross_entropy(model(images), labels).backward()
    alone = {name: parameter.grad for name, parameter in model.named_parameters()}
    own = [stage for stage, owner in enumerate(stage_ranks) if owner == dist.get_rank()]
    stages = []
    for number in own:
        module = Stage(model, number, len(stage_ranks))
        stage = TimedStage(module, number, len(stage_ranks), device)
        stage.events, stage.held, stage.saved = events, held, saved
        stages.append(stage)
    schedule = load(stages, cells, micro_batches, F.cross_entropy)
    for stage_unit in (0.0, unit):  # the first step finds out shapes and connects the ranks
        for stage in stages:
            stage.unit = stage_unit
            stage.submod.zero_grad()
        events.clear()
        held.clear()
        dist.barrier()
        schedule.step(images, target=labels)
    differences = {
        stage.stage_index: max(
            (parameter.grad - alone[name]).abs().max().item()
            for name, parameter in stage.submod.named_parameters()
        )
        for stage in stages
    }
    cleanup()
    return RankRun(events, held, most_in_flight([event.cell for event in events]), differences)


def arguments(schedule: Schedule, unit: float = UNIT_S) -> tuple:
    """What `run_rank` takes."""
    return rows_for_torch(schedule), schedule.stage_ranks, schedule.micro_batches, unit


def run(schedule: Schedule, unit: float = UNIT_S, blocks: int = 0) -> list[RankRun]:
    """The schedule on as many ranks as it has lines."""
    settings = *arguments(schedule, unit), blocks
    return launch(run_rank, *settings, ranks=schedule.ranks, timeout=TIMEOUT_S)


# What came of it


def measured(runs: Sequence[RankRun]) -> list[Timed]:
    """The events of all ranks in milliseconds from the first one's start."""
    events = [event for run in runs for event in run.events]
    first = min(event.start for event in events)
    return [e._replace(start=1e3 * (e.start - first), end=1e3 * (e.end - first)) for e in events]


def verdict(schedule: Schedule, runs: Sequence[RankRun]) -> str:
    """Whether the gradients are those of one process; of which stages they are not."""
    wrong = [
        f"{difference:.0e} in stage {stage}"
        for run in runs
        for stage, difference in sorted(run.differences.items())
        if not difference < EQUAL
    ]
    if not wrong:
        return "All gradients equal those of one process."
    last = len(schedule.stage_ranks) - 1
    order = [
        c.micro_batch
        for c in schedule.cells[schedule.stage_ranks[last]]
        if c.kind == FORWARD and c.stage == last
    ]
    words = f"It ran without an error, but gradients differ from one process: {', '.join(wrong)}."
    if order != sorted(order):
        words += f" The last stage ran its forwards in the order {', '.join(map(str, order))}."
    return words


def run_lines(*lines: str, micro_batches: int) -> figures.Picture:
    """A schedule as a reader types it, a line a rank, with one stage each: what came of it."""
    schedule = read(lines, micro_batches)
    return timeline_plot(schedule, run(schedule))


def run_start(start: str, ranks: int, micro_batches: int) -> figures.Picture:
    """The same for a schedule to start from."""
    schedule = schedule_of(start, ranks, micro_batches)
    return timeline_plot(schedule, run(schedule))


@figures.house_style
def timeline_plot(schedule: Schedule, runs: Sequence[RankRun]) -> figures.Picture:
    """The cells on paper, and below it those that were measured, a lane a rank."""
    flying = ", ".join(map(str, schedule.in_flight))
    title = f"on paper: bubble {schedule.bubble:.0%}, in flight {flying}"
    panels = [(title, "forwards", schedule.timed)]
    events, words = measured(runs), verdict(schedule, runs)
    flying = ", ".join(str(run.in_flight) for run in runs)
    bubble = idle_share(events, schedule.ranks)
    panels.append((f"measured: bubble {bubble:.0%}, in flight {flying}", "ms", events))
    axes_of, picture = panels_plot(schedule, panels)
    for axes in axes_of:
        axes.grid(axis="x")
    wrapped = "\n".join(textwrap.wrap(words, 88))
    picture.figure.supxlabel(wrapped, x=0.01, ha="left", size=10.5, weight="bold")
    picture.figure.set_figheight(picture.figure.get_figheight() + 0.2 * wrapped.count("\n"))
    picture.alt = f"{'; '.join(title for title, *_ in panels)}. {words} {in_words(schedule)}"
    return picture


@figures.house_style
def typed_plot(lines: Sequence[str], stage_ranks: Sequence[int]) -> figures.Picture:
    """The cells where they were typed, a column each; what is no cell is a question mark."""
    cells: list[list[Cell]] = [[] for _ in lines]
    events, unread = [], []
    for rank, line in enumerate(lines):
        for column, word in enumerate(split(line)):
            cell = parse(word, rank)
            if cell and cell.stage < len(stage_ranks):
                cells[rank].append(cell)
                events.append(Timed(rank, cell, column, column + 1))
            elif word not in HOLES:
                unread.append((column + 0.5, rank))
    schedule = Schedule(cells, stage_ranks, 0)
    (axes,), picture = panels_plot(schedule, [("as typed", "cells", events)])
    for place in unread:
        axes.text(*place, "?", ha="center", va="center", weight="bold")
    longest = max([1, *(len(split(line)) for line in lines)])
    axes.set_xlim(0, longest)
    picture.alt = f"As typed: {in_words(schedule)}"
    return picture


def panels_plot(
    schedule: Schedule, panels: Sequence[tuple[str, str, Sequence[Timed]]]
) -> tuple[list[figures.Axes], figures.Picture]:
    """Panels one below the other, each with a title, a unit and its cells."""
    height = 0.75 + len(panels) * (schedule.ranks * 0.36 + 0.95)
    figure = figures.Figure((figures.WIDTH, height), layout="constrained")
    column = list(figure.subplots(len(panels), 1, squeeze=False)[:, 0])
    for axes, (title, unit, events) in zip(column, panels, strict=True):
        for event in events:
            draw_cell(axes, event, schedule)
        figures.label_rows(axes, [f"rank {rank}" for rank in range(schedule.ranks)])
        end = max((event.end for event in events), default=1)
        axes.set(title=title, xlabel=unit, xlim=(0, 1.005 * end))
        axes.xaxis.set_major_locator(figures.MaxNLocator(integer=True))
    kinds = [k for k in KINDS if any(cell.kind == k for row in schedule.cells for cell in row)]
    keys = {KINDS[kind]: look(kind) for kind in kinds or [FORWARD]}
    if len(schedule.stage_ranks) > schedule.ranks:
        keys["lighter: the rank's second stage"] = look(FORWARD, second=True)
    figures.name_looks(figure, keys)
    return column, figures.Picture(figure, "A pipeline.")


def draw_cell(axes: figures.Axes, event: Timed, schedule: Schedule) -> None:
    """A bar with the number of its micro-batch; of a rank's second stage in a lighter colour."""
    second = event.rank in schedule.stage_ranks[: event.cell.stage]
    length = event.end - event.start
    axes.barh(event.rank, length, 0.84, left=event.start, **look(event.cell.kind, second))
    text = {"ha": "center", "va": "center", "size": 9}
    axes.text(event.start + length / 2, event.rank, str(event.cell.micro_batch), **text)


def look(kind: str, second: bool = False) -> dict[str, Any]:
    """How a cell of this kind is filled."""
    number = {FORWARD: 1, BACKWARD: 2, INPUTS: 2, WEIGHTS: 4}[kind]
    colour = series_colour(number)
    if second:
        return {"facecolor": tint(colour, 0.4), "edgecolor": colour, "linewidth": 0.8}
    return series_look(number)


def in_words(schedule: Schedule) -> str:
    """Each rank's cells in their order."""
    lines = [
        f"rank {rank} {' '.join(map(schedule.name, cells))}"
        for rank, cells in enumerate(schedule.cells)
    ]
    return f"{'; '.join(lines)}."
