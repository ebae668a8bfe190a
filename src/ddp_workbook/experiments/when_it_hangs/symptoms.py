"""Twelve programs on four ranks, and what the doctor says of them.

Who hangs says where; who does not is examined by five signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

import ddp_workbook
from ddp_workbook.chapters.distributed_data_parallel import cleanup, setup
from ddp_workbook.experiments.when_it_hangs.faulty_programs import (
    FAULTY_PROGRAMS,
    TrainingLog,
    batches,
)
from manyranks import figures
from manyranks.recording.dispatch_mode import Recorder

if TYPE_CHECKING:
    from manyranks.script_doctor.diagnosis import DoctorReport

CORRECT = "A"
CLOSE = 1e-4  # two mean losses


class ProgramRun(NamedTuple):
    """A program that has run on one rank: its chart, and how many calls communicated."""

    log: TrainingLog
    calls: int


def run_program(program: str) -> tuple[ProgramRun, ProgramRun]:
    """Run the correct program, then the chosen one; all from one seed."""
    setup()
    runs = []
    for name in (CORRECT, program):
        torch.manual_seed(0)
        log, calls = TrainingLog(), list[dict]()
        with Recorder(calls):
            FAULTY_PROGRAMS[name].program(log)
        runs.append(ProgramRun(log, len(calls)))
    dist.barrier()
    return runs[0], runs[1]


def play_symptoms() -> ddp_workbook.Play:
    """A control for the program; a hang is shown as `launch` reports it."""
    return ddp_workbook.play(
        run_program,
        symptoms_table,
        ranks=4,
        stills=[{"program": program} for program in "BCGHJ"],
        program=ddp_workbook.choice("program", tuple(FAULTY_PROGRAMS)),
    )


def symptoms_table(
    of_ranks: list[tuple[ProgramRun, ProgramRun]], **_: object
) -> ddp_workbook.TextTable:
    """The losses that each rank logged, and what the five signals say."""
    correct, faulty = zip(*of_ranks, strict=True)
    logs = [run.log for run in faulty]
    answers = [
        (f"rank {rank} logged", ", ".join(f"{loss:.2f}" for loss in log.losses))
        for rank, log in enumerate(logs)
    ]
    if logs[0].losses:
        losses = [
            abs(correct_loss - faulty_loss) < CLOSE
            for correct_loss, faulty_loss in zip(
                mean_losses(correct), mean_losses(faulty), strict=True
            )
        ]
        answers += [
            ("Rows of its own on each rank?", yes_or_no(distinct(logs, "rows", len(logs)))),
            ("The same gradients on all ranks?", yes_or_no(distinct(logs, "gradients", 1))),
            ("The same weights on all ranks?", yes_or_no(distinct(logs, "weights", 1))),
            ("The losses of one process?", yes_or_no(losses)),
            ("As many calls as it needs?", yes_or_no([faulty[0].calls == correct[0].calls])),
        ]
    return ddp_workbook.text_table(pd.DataFrame(answers, columns=["question", "answer"]))


def distinct(logs: list[TrainingLog], what: str, number: int) -> list[bool]:
    """For each step, whether the ranks hold so many different values."""
    of_steps = zip(*(getattr(log, what) for log in logs), strict=True)
    return [len(set(values)) == number for values in of_steps]


def mean_losses(runs: Sequence[ProgramRun]) -> list[float]:
    """The mean loss over the ranks of each step: that of one process on the whole batch."""
    of_steps = zip(*(run.log.losses for run in runs), strict=True)
    return [sum(losses) / len(losses) for losses in of_steps]


def yes_or_no(of_steps: list[bool]) -> str:
    """Yes, or no and from which step on."""
    if all(of_steps):
        return "yes"
    return f"no, from step {of_steps.index(False)} on" if len(of_steps) > 1 else "no"


def programs_table() -> ddp_workbook.TextTable:
    """What is wrong with each program, and where people asked about it."""
    rows = [
        (
            name,
            entry.program.__name__,
            entry.wrong,
            entry.source.removeprefix("https://github.com/"),
        )
        for name, entry in FAULTY_PROGRAMS.items()
    ]
    columns = ["program", "name", "what was wrong", "thread on GitHub"]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=columns))


# Seen by the doctor


TRAINS_TO_THE_END = "AHIJKL"


@figures.house_style
def curves() -> figures.Picture:
    """The losses that rank 0 logs, of the correct program and of the five silent ones."""
    losses_by_program = {
        f"program {program}": ddp_workbook.launch(run_program, program, ranks=4)[0][1].log.losses
        for program in TRAINS_TO_THE_END
    }
    table = pd.DataFrame(losses_by_program, index=pd.RangeIndex(1, 5, name="step"))
    return figures.lines(table, "loss on rank 0", "Six programs, one of which is right")


def run_for_doctor(program: str) -> None:
    """Run one program on this rank."""
    setup()
    torch.manual_seed(0)
    FAULTY_PROGRAMS[program].program(TrainingLog())
    cleanup()


def doctor_report(program: str, ranks: int) -> DoctorReport:
    """What the doctor says of a program."""
    return ddp_workbook.doctor(run_for_doctor, program, ranks=ranks)


def play_doctor() -> ddp_workbook.Play:
    """Controls for the program, and for how many ranks it runs on."""
    return ddp_workbook.play(
        lambda program, number: doctor_report(program, number),
        lambda diagnosis, **_: diagnosis,
        ranks=None,
        stills=[{"program": one} for one in "AIKC"],
        program=ddp_workbook.choice("program", tuple(FAULTY_PROGRAMS), "H"),
        number=ddp_workbook.slider("ranks", (2, 3, 4), 4),
    )


def losses(last: bool) -> list[float]:
    """Four steps with a sharded model, its optimizer made last or before it was sharded."""
    setup()
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    early = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if last else early
    x, y = next(iter(batches()))
    history = []
    for _ in range(4):
        model.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    cleanup()
    return history


def optimizer_before_sharding() -> ddp_workbook.TextTable:
    """The losses of rank 0 on one batch, with either optimizer."""
    rows = [
        (when, ", ".join(f"{loss:.2f}" for loss in ddp_workbook.launch(losses, last, ranks=2)[0]))
        for when, last in (("after fully_shard", True), ("before fully_shard", False))
    ]
    return ddp_workbook.text_table(pd.DataFrame(rows, columns=["optimizer made", "losses"]))
