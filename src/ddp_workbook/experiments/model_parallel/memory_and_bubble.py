"""Each schedule as a point: how much it holds, and how long its ranks wait; on paper and measured.

All of them cut the same model. A rank with two stages has stages half as large, so a cell takes
half the time, and two of its micro-batches count as one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pandas as pd

import ddp_workbook
from ddp_workbook.experiments.model_parallel import pipeline
from ddp_workbook.experiments.model_parallel.schedules import (
    ALL,
    bubble_formula,
    schedule_of,
    stages_of_a_rank,
)
from ddp_workbook.judging.pipeline_schedules import Schedule, idle_share, read
from manyranks import figures
from manyranks.figures.palette import INK, series_colour

UNIT_S = 0.02  # of a forward through all blocks of a rank
ON_PAPER, MEASURED = "on paper", "measured"
HIGHEST = 45  # percent, the same for all settings of the player
TO_THE_RIGHT = {"interleaved", "DualPipeV"}  # of its dot stands the name


class Point(NamedTuple):
    """A schedule in the picture."""

    start: str
    source: str  # ON_PAPER or MEASURED
    held: float  # micro-batches on the fullest rank
    bubble: float


def points(ranks: int, micro_batches: int) -> list[Point]:
    """All schedules on paper."""
    result = []
    for start in ALL:
        schedule = schedule_of(start, ranks, micro_batches)
        held = max(schedule.in_flight) / stages_of_a_rank(start)
        result.append(Point(start, ON_PAPER, held, schedule.bubble))
    return result


def measured_points(ranks: int, micro_batches: int) -> list[Point]:
    """All schedules on real ranks, by the clock and by the bytes that autograd holds."""
    result, of_one = [], 0.0
    for start in ALL:
        runs = run(start, ranks, micro_batches)
        if start == "GPipe":  # it holds all micro-batches at once
            of_one = max(runs[1].held) / micro_batches
        held = max(max(run.held) for run in runs) / of_one
        bubble = idle_share(pipeline.measured(runs), ranks)
        result.append(Point(start, MEASURED, held, bubble))
    return result


def run(start: str, ranks: int, micro_batches: int) -> list[pipeline.RankRun]:
    """One of ALL, on a model of two blocks for each rank; asserts that it equals one process."""
    schedule = schedule_of(start, ranks, micro_batches)
    runs = pipeline.run(schedule, UNIT_S / stages_of_a_rank(start), blocks=2 * ranks)
    assert all(off < pipeline.EQUAL for run in runs for off in run.differences.values())
    return runs


def measure(ranks: int, micro_batches: int) -> figures.Picture:
    """The picture of both."""
    return points_plot(points(ranks, micro_batches) + measured_points(ranks, micro_batches))


@figures.house_style
def points_plot(found: list[Point], **_: object) -> figures.Picture:
    """Memory to the right, bubble upwards; a ring is measured, and belongs to its dot."""
    figure = figures.Figure((figures.WIDTH, 4.2), layout="constrained")
    axes = figure.subplots()
    for point in found:
        colour = series_colour(list(ALL).index(point.start))
        face = colour if point.source == ON_PAPER else "none"
        place = point.held, 100 * point.bubble
        axes.plot(*place, "o", ms=10, mfc=face, mec=colour, mew=2, label=point.source)
        if point.source == ON_PAPER:
            side = "left" if point.start in TO_THE_RIGHT else "right"
            away = {"left": 11, "right": -11}[side]
            text = {"ha": side, "va": "center", "color": INK, "size": 10}
            axes.annotate(point.start, place, (away, 0), textcoords="offset points", **text)
            for ring in found:
                if ring.start == point.start:
                    ends = [point.held, ring.held], [place[1], 100 * ring.bubble]
                    axes.plot(*ends, color=colour, lw=1, zorder=0.5)
    furthest = max(point.held for point in found)
    axes.set(xlim=(0, 1.15 * furthest), ylim=(0, HIGHEST))
    axes.set(xlabel="micro-batches held on the fullest rank", ylabel="bubble, % of the time")
    if any(point.source == MEASURED for point in found):
        looks = {ON_PAPER: INK, MEASURED: "none"}
        handles = [
            axes.plot([], [], "o", ms=8, mfc=face, mec=INK, mew=1.5, label=source)[0]
            for source, face in looks.items()
        ]
        axes.legend(handles=handles, loc="upper left", ncols=2)
    words = "; ".join(
        f"{p.start} {p.source}: bubble {p.bubble:.0%}, {p.held:.1f} held" for p in found
    )
    return figures.Picture(figure, f"Bubble and memory of each schedule. {words}.")


def table(ranks: int, micro_batches: int) -> pd.DataFrame:
    """What belongs to each point: k and the formula, and what is sent and held rank by rank."""
    rows = {}
    for start, chosen in ALL.items():
        schedule = schedule_of(start, ranks, micro_batches)
        rows[start] = {
            "stages on a rank": chosen.stages,
            "k": chosen.k,
            "bubble by formula": f"{bubble_formula(start, ranks, micro_batches):.1%}",
            "from its cells": f"{schedule.bubble:.1%}",
            "messages": messages(schedule),
            "held, rank by rank": ", ".join(f"{n / chosen.stages:g}" for n in schedule.in_flight),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def messages(schedule: Schedule) -> int:
    """How many tensors go from rank to rank in a step, forward and backward."""
    borders = sum(one != other for one, other in pairwise(schedule.stage_ranks))
    return 2 * borders * schedule.micro_batches


def play_on_paper() -> ddp_workbook.Play:
    """The same without ranks, for more of them; a V needs as many micro-batches as stages."""
    return ddp_workbook.play(
        lambda stages, times: points(stages, times * stages),
        points_plot,
        ranks=None,
        stills=[{"times": 8}, {"stages": 16}],
        stages=ddp_workbook.slider("ranks", (2, 4, 8, 16), 4),
        times=ddp_workbook.slider("micro-batches for each of them", (2, 4, 8), 2),
    )


# The two halves of a backward


def held_by_halves() -> figures.Picture:
    """What rank 1 of two holds after each cell of a line that puts off its W."""
    lines = "F0 F1 F2 B0 B1 B2", "F0 F1 I0 F2 I1 I2 W0 W1 W2"
    schedule = read(lines, 3)
    return held_plot(schedule, pipeline.run(schedule, unit=0.0)[1])


@figures.house_style
def held_plot(schedule: Schedule, run: pipeline.RankRun) -> figures.Picture:
    """A bar for each cell of the rank, as high as what autograd held after it."""
    names = [schedule.name(event.cell) for event in run.events]
    sizes = [held / 1024 for held in run.held]
    figure = figures.Figure((figures.WIDTH, 2.8), layout="constrained")
    axes = figure.subplots()
    for place, (event, size) in enumerate(zip(run.events, sizes, strict=True)):
        axes.bar(place, size, 0.8, **pipeline.look(event.cell.kind))
        axes.text(place, size, f"{size:.0f}", ha="center", va="bottom", size=9)
    axes.set_xticks(range(len(names)), names)
    axes.set(xlabel="rank 1, after each of its cells", ylabel="kB held for backward")
    axes.grid(axis="y")
    axes.set_ylim(0, 1.15 * max(sizes))
    words = "; ".join(f"{name} {size:.0f}" for name, size in zip(names, sizes, strict=True))
    return figures.Picture(figure, f"kB that rank 1 holds for backward after each cell: {words}.")
