"""Twelve patients on four ranks: who hangs says where; who does not is examined by five signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist

import ddp_workbook
from ddp_workbook.chapters.distributed_data_parallel import setup
from ddp_workbook.experiments.when_it_hangs.patients import PATIENTS, Chart
from ddp_workbook.recording.dispatch_mode import Recorder

WELL = "A"
CLOSE = 1e-4  # two mean losses


class Stay(NamedTuple):
    """A program that has run on one rank: its chart, and how many calls communicated."""

    chart: Chart
    calls: int


def admitted(patient: str) -> tuple[Stay, Stay]:
    """Run the program that is well, then the patient's; all from one seed."""
    setup()
    stays = []
    for one in (WELL, patient):
        torch.manual_seed(0)
        chart, calls = Chart(), list[dict]()
        with Recorder(calls):
            PATIENTS[one].program(chart)
        stays.append(Stay(chart, len(calls)))
    dist.barrier()
    return stays[0], stays[1]


def play_ward() -> ddp_workbook.Play:
    """A control for the patient; a hang is shown as `launch` reports it."""
    return ddp_workbook.play(
        admitted,
        examined,
        ranks=4,
        stills=[{"patient": one} for one in "BCGHJ"],
        patient=ddp_workbook.choice("patient", tuple(PATIENTS)),
    )


def examined(of_ranks: list[tuple[Stay, Stay]], **_: object) -> ddp_workbook.TextTable:
    """The losses that each rank logged, and what the five signals say."""
    well, ill = zip(*of_ranks, strict=True)
    charts = [stay.chart for stay in ill]
    found = [
        (f"rank {rank} logged", ", ".join(f"{loss:.2f}" for loss in chart.losses))
        for rank, chart in enumerate(charts)
    ]
    if charts[0].losses:
        losses = [
            abs(one - other) < CLOSE for one, other in zip(means(well), means(ill), strict=True)
        ]
        found += [
            ("Rows of its own on each rank?", said(distinct(charts, "rows", len(charts)))),
            ("The same gradients on all ranks?", said(distinct(charts, "gradients", 1))),
            ("The same weights on all ranks?", said(distinct(charts, "weights", 1))),
            ("The losses of one process?", said(losses)),
            ("As many calls as it needs?", said([ill[0].calls == well[0].calls])),
        ]
    return ddp_workbook.text_table(pd.DataFrame(found, columns=["question", "answer"]))


def distinct(charts: list[Chart], what: str, number: int) -> list[bool]:
    """For each step, whether the ranks hold so many different values."""
    of_steps = zip(*(getattr(chart, what) for chart in charts), strict=True)
    return [len(set(values)) == number for values in of_steps]


def means(stays: Sequence[Stay]) -> list[float]:
    """The mean loss over the ranks of each step: that of one process on the whole batch."""
    of_steps = zip(*(stay.chart.losses for stay in stays), strict=True)
    return [sum(losses) / len(losses) for losses in of_steps]


def said(of_steps: list[bool]) -> str:
    """Yes, or no and from which step on."""
    if all(of_steps):
        return "yes"
    return "no" + f", from step {of_steps.index(False)} on" * (len(of_steps) > 1)


def patients() -> ddp_workbook.TextTable:
    """Who the patients were, and where people asked about them."""
    rows = [
        (name, one.program.__name__, one.wrong, one.source.removeprefix("https://github.com/"))
        for name, one in PATIENTS.items()
    ]
    columns = ["patient", "program", "what was wrong", "thread on GitHub"]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))
