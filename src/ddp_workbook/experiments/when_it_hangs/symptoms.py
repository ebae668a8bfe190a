"""Twelve programs on four ranks, and what the doctor says of them.

Who hangs says where; who does not is examined by five signals.
"""

from __future__ import annotations

import html
import linecache
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
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
from manyranks.diagnostics.evidence import State
from manyranks.figures.palette import tint
from manyranks.launcher.calls import call_of
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks
from manyranks.rank_colours import rank_colour
from manyranks.recording.dispatch_mode import Recorder

if TYPE_CHECKING:
    from manyranks.script_doctor.diagnosis import DoctorReport

CORRECT = "A"
RANKS, TIMEOUT_S = 4, 60.0
CLOSE = 1e-4  # two mean losses
THREAD = "thread on GitHub"


class ProgramRun(NamedTuple):
    """A program that has run on one rank: its chart, and how many calls communicated."""

    log: TrainingLog
    calls: int


class CallTimes(list):
    """The calls of a rank; a file keeps the time of the last one, for those whom a hang leaves."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.start = path, time.monotonic()

    def __iadd__(self, calls: list) -> CallTimes:  # type: ignore[override, misc]
        self.path.write_text(str(time.monotonic() - self.start))
        self.extend(calls)
        return self


def run_program(program: str, folder: str = "") -> tuple[ProgramRun, ProgramRun]:
    """A worker: the correct program, then the chosen one; all from one seed.

    With a `folder`, it holds the seconds from the chosen program's start to the last call of each
    rank.
    """
    setup()
    runs: list[ProgramRun] = []
    for name in (CORRECT, program):
        torch.manual_seed(0)
        log, calls = TrainingLog(), list[dict]()
        if folder and len(runs) == 1:
            calls = CallTimes(Path(folder, str(dist.get_rank())))
        with Recorder(calls):
            FAULTY_PROGRAMS[name].program(log)
        runs.append(ProgramRun(log, len(calls)))
    dist.barrier()
    return runs[0], runs[1]


class HungProgram(NamedTuple):
    """What `launch` said of a hang, and for each rank the seconds to its last call."""

    failure: ddp_workbook.RanksHung
    last_call_s: list[float]


def run_or_hang(program: str) -> list[tuple[ProgramRun, ProgramRun]] | HungProgram:
    """What each rank noted, or where the ranks stand."""
    with tempfile.TemporaryDirectory() as folder:
        call = call_of(run_program, (program, folder), {}, RANKS)
        try:
            return run_ranks(call, RANKS, quiet=True, hang_limits=HangLimits(patience=TIMEOUT_S))
        except ddp_workbook.RanksHung as failure:
            files = [Path(folder, str(rank)) for rank in range(RANKS)]
            last = [float(file.read_text()) if file.exists() else 0.0 for file in files]
            return HungProgram(failure, last)


def play_symptoms() -> ddp_workbook.Play:
    """A control for the program; it opens on B, which hangs."""
    return ddp_workbook.play(
        run_or_hang,
        symptoms_view,
        ranks=None,
        stills=[{"program": program} for program in "ACGHJ"],
        program=ddp_workbook.choice("program", tuple(FAULTY_PROGRAMS), "B"),
    )


def symptoms_view(
    outcome: list[tuple[ProgramRun, ProgramRun]] | HungProgram, **_: object
) -> ddp_workbook.TextTable | HangView:
    """A picture of a hang, or a table of what the five signals say."""
    if isinstance(outcome, HungProgram):
        return HangView(hang_plot(outcome), [str(one) for one in outcome.failure.mismatches])
    return symptoms_table(outcome)


class HangView(NamedTuple):
    """The picture of a hang, and below it the calls that differ."""

    picture: figures.Picture
    sentences: list[str]

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(short(line))}</p>" for line in self.sentences)
        return self.picture._repr_html_() + lines

    def __repr__(self) -> str:
        return "\n".join([repr(self.picture), *map(short, self.sentences)])


def short(sentence: str) -> str:
    """Without the folders of a path: the page has one file only."""
    return re.sub(r"[\w/.-]*/(\w+\.py)", r"\1", sentence)


@figures.house_style
def hang_plot(hang: HungProgram) -> figures.Picture:
    """A lane a rank: it trains, then waits to the end of the page; in words, in which line."""
    positions = hang.failure.positions
    usual = Counter((one.line, one.call) for one in positions).most_common(1)[0][0]
    end = 3.5 * max(hang.last_call_s)
    figure = figures.Figure((figures.WIDTH, 3.6), layout="constrained")
    axes = figure.subplots()
    words = []
    for rank, (position, last) in enumerate(zip(positions, hang.last_call_s, strict=True)):
        colour = rank_colour(rank)
        axes.barh(rank, last, 0.62, color=colour)
        waits = position.state is State.WAITING
        axes.barh(rank, 2 * end, 0.62, left=last, color=tint(colour, 0.3 if waits else 0.8))
        line = linecache.getline(position.file, position.line).strip()
        place = f"{position.state.value} {position.call}".strip()
        other = (position.line, position.call) != usual
        axes.text(
            last + end / 80,
            rank,
            f"{place}, line {position.line}\n{line}",
            va="center",
            size=10,
            weight="bold" if other else "normal",
        )
        words.append(f"rank {rank} {place}, line {position.line}: {line}")
    figures.label_rows(axes, [f"rank {rank}" for rank in range(len(positions))])
    axes.set_xlim(0, end)
    axes.set_xticks([0, max(hang.last_call_s)], ["0", f"{1e3 * max(hang.last_call_s):.0f} ms"])
    axes.set_xlabel("time; where a bar is pale, the rank waits, and no end is in sight")
    axes.set_title("Where each rank stands, in faulty_programs.py")
    return figures.Picture(
        figure, f"A lane for each rank, which runs and then stands. {'; '.join(words)}."
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
            ("Samples of its own on each rank?", yes_or_no(distinct(logs, "rows", len(logs)))),
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
        (name, entry.program.__name__, entry.wrong, entry.source)
        for name, entry in FAULTY_PROGRAMS.items()
    ]
    frame = pd.DataFrame(rows, columns=["program", "name", "what was wrong", THREAD])
    table = ddp_workbook.text_table(frame)
    return table.format(link, subset=[THREAD]).format(code, subset=["name", "what was wrong"])


def link(address: str) -> str:
    """The thread as a link on a page, "" if none is known."""
    name = address.removeprefix("https://github.com/").replace("/issues/", " #")
    return f'<a href="{address}">{name}</a>' if address else ""


def code(words: str) -> str:
    """Words for a page, with what stands in backticks or is a name as code."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))
    return re.sub(r"^(\w+_\w+)$", r"<code>\1</code>", marked)


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
