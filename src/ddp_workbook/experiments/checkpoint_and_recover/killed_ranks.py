"""A training whose ranks the reader kills by a button, and what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import pandas as pd

import ddp_workbook
from ddp_workbook.chapters import checkpoint_and_recover
from ddp_workbook.chapters.digits import Result, furthest
from ddp_workbook.experiments.checkpoint_and_recover import traced_training
from manyranks import figures
from manyranks.errors import RankFailed
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import launch, run_ranks

if TYPE_CHECKING:
    from ipywidgets import ValueWidget

    from ddp_workbook.page.live_player import LivePlayer

NEVER = "never"
RANKS = 4
RUN: dict[str, Any] = {"epochs": 1, "batch_size": 60}
STEPS = 30
SAVE_INTERVALS = (1, 5, 10, NEVER)  # steps from save to save
QUICK_EXTRA_S, SLOW_EXTRA_S = (
    0.02,
    0.2,
)  # seconds that a step takes longer: by itself, and in a slow run
KILL_AFTER_STEP, NOBODY = (
    17,
    "nobody",
)  # after this step a rank is killed, unless the reader does it
ATTEMPTS = 10  # of one run; then the agent gives up, as torchrun does after --max-restarts
STARTED, STEP, KILLED, ERROR = "started", "step", "killed", "error"  # what ranks note


# In a rank


def train_and_log(folder: str, pace: float, victim: int | str, saved: str, every: int) -> Result:
    """The chapter's training, `pace` seconds a step longer; it notes what the page wants to see."""
    rank = int(os.environ["RANK"])
    with Path(folder, f"{rank}").open("a", buffering=1) as notes:
        log = partial(traced_training.log_event, to=notes)

        def accident() -> None:
            if rank == victim:
                log(KILLED, KILL_AFTER_STEP)
                os.kill(os.getpid(), signal.SIGKILL)

        log(STARTED, 0)
        traced_training.trace_training(accident, KILL_AFTER_STEP, pace, log=log)
        try:
            return checkpoint_and_recover.train(saved=saved, every=every, **RUN)
        except RuntimeError:  # gloo's: another rank is gone
            log(ERROR, 0)
            raise


# In the kernel


class Attempt:
    """One start of all ranks, and what they noted so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kill_time = folder, 0.0  # when, if the reader did it
        folder.mkdir()

    def notes(self, rank: int, event: str) -> list[dict[str, Any]]:
        """What each complete line of this kind says."""
        path = self.folder / str(rank)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [
            line.removeprefix(traced_training.EVENT_PREFIX) for line in lines if line.endswith("\n")
        ]
        return [row for row in map(json.loads, whole) if row["event"] == event]

    def losses(self) -> pd.Series:
        """Of each step that rank 0 has done, by its number."""
        return pd.Series({row["step"]: row["loss"] for row in self.notes(0, STEP)}, dtype=float)

    def kill(self, rank: int) -> None:
        """SIGKILL, as the kernel sends it when memory runs out; nothing if it is gone already."""
        for row in self.notes(rank, STARTED):
            self.kill_time = time.time()
            with contextlib.suppress(ProcessLookupError):
                os.kill(row["pid"], signal.SIGKILL)

    def detection_ms(self) -> list[float]:
        """Milliseconds after the kill at which the other ranks got an error, in order."""
        kills, errors = (
            [row["time"] for rank in range(RANKS) for row in self.notes(rank, event)]
            for event in (KILLED, ERROR)
        )
        return [1e3 * (error - max([self.kill_time, *kills])) for error in sorted(errors)]


class RunOutcome(NamedTuple):
    """What came of a run: its attempts, the failure of each, and its end if it came to one."""

    attempts: list[Attempt]
    failures: list[RankFailed]
    result: Result | None


class Runs:
    """The runs of one player; the folder is gone when the player is."""

    def __init__(self, agent: bool) -> None:
        self.agent, self.by_hand = agent, False  # whether the reader kills in the next run
        self.folder = Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.attempts: list[Attempt] = []
        self.number = 0

    def __call__(
        self,
        output: TextIO,
        cancelled: threading.Event | None,
        victim: int | str,
        every: int | str = NEVER,
    ) -> RunOutcome:
        """Start all ranks; with an agent, start them again as long as one is killed."""
        failures: list[RankFailed] = []
        self.attempts, self.number = [], self.number + 1
        pace, victim = (SLOW_EXTRA_S, NOBODY) if self.by_hand else (QUICK_EXTRA_S, victim)
        self.by_hand = False
        saved = "" if every == NEVER else str(self.folder / f"saved {self.number}")
        steps = STEPS + 1 if every == NEVER else int(every)
        while True:
            attempt = Attempt(self.folder / f"run {self.number}, attempt {len(self.attempts) + 1}")
            self.attempts.append(attempt)
            call = Call(train_and_log, (str(attempt.folder), pace, victim, saved, steps))
            try:
                results = run_ranks(call, RANKS, 60, quiet=True, output=output, cancelled=cancelled)
                return RunOutcome(self.attempts, failures, results[0])
            except RankFailed as failure:
                failures.append(failure)
                victim = NOBODY
                if not self.agent or len(failures) == ATTEMPTS:
                    return RunOutcome(self.attempts, failures, None)

    def start(self, live: LivePlayer) -> None:
        """A run into which the reader can reach."""
        self.by_hand = True
        live.start()

    def kill(self, rank: int) -> None:
        """Kill this rank of the attempt that runs."""
        if self.attempts:
            self.attempts[-1].kill(rank)

    def frame(self) -> figures.Picture | None:
        """The losses so far."""
        return losses_plot(self.attempts)


@cache
def uninterrupted_run() -> Result:
    """The same training, and nobody kills a rank."""
    return launch(checkpoint_and_recover.train, ranks=RANKS, **RUN)[0]


def play_kill() -> LivePlayer:
    """A training without saves, and a button a rank."""
    return player(Runs(agent=False), stills=[{"victim": victim} for victim in (NOBODY, 0, 3)])


def play_recovery() -> LivePlayer:
    """The same with saves, and with an agent that starts all ranks again."""
    saves = ddp_workbook.slider("steps from save to save", SAVE_INTERVALS, 10)
    return player(
        Runs(agent=True), stills=[{"every": every} for every in (NEVER, 1, 5)], every=saves
    )


def kill(runs: Runs, rank: int) -> Callable[[LivePlayer], None]:
    """What the button of a rank does."""
    return lambda _: runs.kill(rank)


def player(runs: Runs, stills: list[dict], **controls: ValueWidget) -> LivePlayer:
    """The controls, the buttons and the first run."""
    from ddp_workbook.page.live_player import LivePlayer

    buttons: dict[str, Callable[[LivePlayer], None]] = {"start a slow run": runs.start}
    for rank in range(RANKS):
        buttons[f"kill {rank}"] = kill(runs, rank)
    victim = ddp_workbook.choice(
        f"killed after step {KILL_AFTER_STEP}: rank", (NOBODY, *range(RANKS)), 2
    )
    controls = {"victim": victim, **controls}
    live = LivePlayer(runs, outcome_plot, runs.frame, buttons, stills, **controls)
    live.first()
    return live


@figures.house_style
def losses_plot(attempts: Sequence[Attempt]) -> figures.Picture | None:
    """The loss of each step, a line for each attempt; None before the first step."""
    losses_by_attempt = {
        f"attempt {n}": attempt.losses() for n, attempt in enumerate(attempts, start=1)
    }
    table = pd.DataFrame(
        {name: losses for name, losses in losses_by_attempt.items() if len(losses)}
    )
    if table.empty:
        return None
    table.index.name = "step"
    picture = figures.lines(table, "loss", "Loss of each step")
    picture.axes.set(xlim=(0, STEPS + 1), ylim=(0, 2.5))
    return picture


@figures.house_style
def outcome_plot(outcome: RunOutcome, **_: object) -> figures.Picture:
    """The losses, and what became of each attempt in words; raises the failure before any step."""
    picture = losses_plot(outcome.attempts)
    if picture is None:
        raise outcome.failures[0]
    words = [in_words(*pair) for pair in zip(outcome.attempts, outcome.failures, strict=False)]
    if outcome.result:
        words.append(end_in_words(outcome.attempts, outcome.result))
    picture.axes.set_title("\n".join(words), loc="left", size=10)
    picture.alt += f" {' '.join(words)}"
    return picture


def in_words(attempt: Attempt, failure: RankFailed) -> str:
    """Who died after which step, who noticed, and how much later."""
    losses, delays_ms = attempt.losses(), attempt.detection_ms()
    words = f"Rank {failure.rank} was killed after step {max(losses.index, default=0)}"
    if delays_ms:
        words += f": the first of the others got an error {delays_ms[0]:.0f} ms later"
    return f"{words}."


def end_in_words(attempts: Sequence[Attempt], result: Result) -> str:
    """How many steps were computed twice, and whether losses and weights are the uninterrupted."""
    expected = uninterrupted_run()
    again = sum(len(attempt.losses()) for attempt in attempts) - STEPS
    same = result.losses == expected.losses and not furthest(result.weights, expected.weights)
    twice = f"{again} steps were computed again. " if again else ""
    return f"{twice}The end is {'' if same else 'not '}that of an uninterrupted run, bit for bit."
