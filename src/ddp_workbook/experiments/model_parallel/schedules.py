"""Schedules to start from, and what is compared of them; how one is read is in judging."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pandas as pd

from ddp_workbook.judging.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHTS,
    Cell,
    Schedule,
    parse,
    read,
    stage_ranks_in_turn,
    stage_ranks_in_v,
)


class Start(NamedTuple):
    """A schedule to start from: how it is made of ranks and micro-batches, and its formula's k."""

    make: Callable[[int, int], list[list[Cell]]]
    k: int
    stages: int = 1  # on each rank
    v: bool = False  # down the ranks and up again

    def stage_ranks(self, ranks: int) -> list[int]:
        """The rank of each stage."""
        return stage_ranks_in_v(ranks) if self.v else stage_ranks_in_turn(ranks, self.stages)


def compare(ranks: int, micro_batches: int) -> pd.DataFrame:
    """The schedules to start from: their bubbles, and what the first and the last rank hold.

    Stages are those of one rank; a schedule with two has stages half as large.
    """
    rows = {}
    for start in STARTS:
        schedule = schedule_of(start, ranks, micro_batches)
        stages = stages_of_a_rank(start)
        first, *_, last = (held / stages for held in schedule.in_flight)
        rows[start] = {
            "stages on a rank": stages,
            "bubble": f"{schedule.bubble:.0%}",
            "by formula": f"{bubble_formula(start, ranks, micro_batches):.0%}",
            "in flight on the first rank": first,
            "on the last": last,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


# Schedules to start from


def gpipe(ranks: int, micro_batches: int) -> list[list[Cell]]:
    """All forwards, then all backwards."""
    numbers = range(micro_batches)
    return [
        [Cell(kind, r, n) for kind in (FORWARD, BACKWARD) for n in numbers] for r in range(ranks)
    ]


def one_forward_one_backward(ranks: int, micro_batches: int) -> list[list[Cell]]:
    """1F1B: as few forwards ahead as keep the next rank busy, then in turns."""
    result = []
    for rank in range(ranks):
        ahead = min(ranks - 1 - rank, micro_batches)
        cells = [Cell(FORWARD, rank, n) for n in range(ahead)]
        for number in range(micro_batches):
            if number + ahead < micro_batches:
                cells.append(Cell(FORWARD, rank, number + ahead))
            cells.append(Cell(BACKWARD, rank, number))
        result.append(cells)
    return result


def zero_bubble(ranks: int, micro_batches: int) -> list[list[Cell]]:
    """1F1B whose backwards are halved: the weights' halves wait until a rank has nothing else."""
    result = []
    for rank, cells in enumerate(one_forward_one_backward(ranks, micro_batches)):
        halved, later = [], []
        for cell in cells:
            if cell.kind == FORWARD:
                halved.append(cell)
                continue
            halved.append(cell._replace(kind=INPUTS))
            later.append(cell._replace(kind=WEIGHTS))
            if len(later) > rank:  # the later the stage, the earlier its first backward
                halved.append(later.pop(0))
        result.append(halved + later)
    return result


def from_pytorch(name: str, ranks: int, micro_batches: int) -> list[list[Cell]]:
    """PyTorch's own, with two stages a rank; a cell that overlaps two is written as these two."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    rows = get_schedule_ops(name, ranks, micro_batches, num_stages_per_rank=2)
    actions = [[part for one in row if one for part in one.sub_actions or [one]] for row in rows]
    return [
        [cell for action in row if (cell := parse(str(action), rank))]
        for rank, row in enumerate(actions)
    ]


STARTS = {
    "GPipe": Start(gpipe, 1),
    "1F1B": Start(one_forward_one_backward, 1),
    "zero bubble": Start(zero_bubble, 3),
    "interleaved": Start(partial(from_pytorch, "Interleaved1F1B"), 2, stages=2),
}
IN_V = {  # for at least as many micro-batches as there are stages
    "ZBV": Start(partial(from_pytorch, "ZBVZeroBubble"), 6, stages=2, v=True),
    "DualPipeV": Start(partial(from_pytorch, "DualPipeV"), 6, stages=2, v=True),
}
ALL = STARTS | IN_V


def bubble_formula(start: str, ranks: int, micro_batches: int) -> float:
    """Its bubble, (p - 1) / (k m + p - 1), if all cells of a kind take the time of UNITS."""
    k = ALL[start].k
    return (ranks - 1) / (k * micro_batches + ranks - 1)


def stages_of_a_rank(start: str) -> int:
    """How many this schedule has."""
    return ALL[start].stages


def lines_of(start: str, ranks: int, micro_batches: int) -> list[str]:
    """The lines of one of ALL."""
    chosen = ALL[start]
    schedule = Schedule(chosen.make(ranks, micro_batches), chosen.stage_ranks(ranks), micro_batches)
    return [" ".join(map(schedule.name, row)) for row in schedule.cells]


def schedule_of(start: str, ranks: int, micro_batches: int) -> Schedule:
    """One of ALL, read from its lines."""
    lines = lines_of(start, ranks, micro_batches)
    return read(lines, micro_batches, ALL[start].stage_ranks(ranks))
