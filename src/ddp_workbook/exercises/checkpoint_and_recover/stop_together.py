"""End a training run on all ranks after the same step, when one of them gets a signal to stop.

All ranks call `stop_together(step, steps)`: it calls `step()` up to `steps` times. A cluster that
needs the machine sends SIGUSR1, sometimes to one rank only, and at any moment. The ranks must
leave the loop together, to save afterwards.

- `step()` is a step of training: it waits for all other ranks. If one has left, the others hang.
- A signal during a step, or just after it, ends the loop on all ranks after that step, or at the
  latest after the next one. All ranks have then made the same number of steps, and return it.
- Without a signal, all `steps` steps are made. A process without a handler for SIGUSR1 is killed
  by it, and it may come as soon as the first `step()` begins.
- Several ranks may get the signal, one may get it twice. A signal in the last step changes
  nothing.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ddp_workbook.judging import Comparison, DistributedCheck, Observation, edit, in_words
from ddp_workbook.judging.equality import is_index
from manyranks.diagnostics import user_code

MINUTES = 10
HINTS = [
    "A handler runs between two lines of Python, wherever the rank is just then. What is the least "
    "that it can do, so that the loop does the rest?",
    "What one rank has heard, the others must know before any of them leaves. Which collective "
    "tells all ranks whether one of them has something?",
    "Every rank decides by what the collective has told, at the same place of the loop: also the "
    "rank that has heard the signal, for it may have come after its part was sent.",
]


def stop_together(step: Callable[[], None], steps: int) -> int:
    """Make up to `steps` steps, fewer if a rank gets SIGUSR1; return how many."""
    ### BEGIN SOLUTION
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    for done in range(1, steps + 1):
        step()
        told = torch.tensor(len(heard))
        dist.all_reduce(told)
        if told > 0:  # not `heard`: that may have changed since the tensor was made
            return done
    return steps
    ### END SOLUTION


STEPS = 8  # of a training that is not told to stop
DELAY_S = 0.04
IN_STEP = "nothing: it is in a step"
AT_START, WAITING, AT_END, AFTER_STEP = (
    "when it begins",
    "while this rank waits in it for the others",
    "at its end, when the other ranks have made it",
    "just after it, while the other ranks are late",
)


class SignalCase(NamedTuple):
    """One call: which ranks get a signal, in which step, and when in it."""

    ranks: tuple[int, ...] = ()
    step: int = 0
    moment: str = ""
    times: int = 1


def cases(size: int) -> list[SignalCase]:
    """The calls at a world size."""
    last = size - 1
    return [
        SignalCase(),
        SignalCase((last,), 3, AT_START),
        SignalCase((last,), 2, AFTER_STEP),
        SignalCase((0,), 1, WAITING),
        SignalCase((last // 2,), 4, AT_END, times=2),
        SignalCase(tuple(range(size)), 3, AT_START),
        SignalCase((0,), STEPS, AFTER_STEP),
    ]


class RanksApart(BaseException):
    """One rank has left, and another is in a step, in which it would wait forever."""


CALLS = count()  # of this rank


class Training:
    """The steps of one call on this rank; ranks meet in the store, and see who has left."""

    def __init__(self, case: SignalCase) -> None:
        self.case, self.number, self.num_meetings, self.steps_made = case, next(CALLS), 0, 0
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.store = dist.distributed_c10d._get_default_store()
        self.timers: list[threading.Timer] = []
        self.in_step = False
        self.signal_steps: list[int] = []  # the step in which, or just after which, a signal came

    def step(self) -> None:
        """Meet the others, as an all-reduce of gradients does."""
        moment = self.case.moment if self.case.step == self.steps_made + 1 else ""
        self.in_step = True
        if moment == AT_START:
            self.send_signal()
        if moment == WAITING:
            self.send_signal(after=DELAY_S / 2)
        self.wait_for_all("in the next step")
        self.steps_made, self.in_step = self.steps_made + 1, False
        if moment == AT_END:
            time.sleep(DELAY_S / 2 * (self.rank in self.case.ranks))
            self.send_signal()
        if moment == AFTER_STEP:
            self.send_signal(after=DELAY_S / 2)

    def send_signal(self, after: float = 0.0) -> None:
        """Send the signal now, or while this rank waits for the others, which are late."""
        if self.rank not in self.case.ranks:
            time.sleep(after * 2)
        elif after and self.size > 1:
            self.timers.append(threading.Timer(after, self.kill))
            self.timers[-1].start()
        else:
            self.kill()

    def kill(self) -> None:
        """As `kill -USR1` in a shell does, to this process."""
        for _ in range(self.case.times):
            self.signal_steps.append(self.steps_made + self.in_step)
            os.kill(os.getpid(), signal.SIGUSR1)

    @user_code.mark_finished_wait
    def wait_for_all(self, where: str) -> None:
        """Say where this rank is, and wait until all have; RanksApart if places differ."""
        place = f"stop {self.number} {self.num_meetings} "
        self.store.set(f"{place}{self.rank}", where)
        self.num_meetings += 1
        if any(self.store.get(f"{place}{rank}") != where.encode() for rank in range(self.size)):
            raise RanksApart


def run_training(stop_together: Callable, case: SignalCase) -> dict[str, Any]:
    """How many steps this rank has made, what the function returned, and when it was told."""
    training, mask = Training(case), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    is_apart, returned = True, IN_STEP
    try:
        try:
            returned = stop_together(training.step, STEPS)
        finally:  # a signal may still come, also from another rank
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        training.wait_for_all("away")
        is_apart = False
    except RanksApart:
        pass
    for timer in training.timers:
        timer.join()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    first_signal = min(training.signal_steps, default=STEPS)
    return {
        "apart": is_apart,
        "steps": training.steps_made,
        "returned": returned,
        "first_signal": first_signal,
    }


def call_text(case: SignalCase) -> str:
    """The call in words."""
    whole = f"stop_together(step, steps={STEPS})"
    if not case.ranks:
        return f"{whole}, and no signal"
    receivers = f"rank {case.ranks[0]} gets" if len(case.ranks) == 1 else "all ranks get"
    signals = " two signals" if case.times > 1 else " a signal"
    return f"{whole}; {receivers}{signals} in step {case.step}, {case.moment}"


def outcome(obs: Observation) -> str:
    """How the training has ended, in a word."""
    if obs.actual["apart"]:
        return "apart"
    first_signal = min(rank_obs.actual["first_signal"] for rank_obs in obs.all_ranks)
    if obs.actual["steps"] < min(first_signal, STEPS):
        return "early"
    return "late" if obs.actual["steps"] > min(first_signal + 1, STEPS) else "together"


def describe_ranks(obs: Observation) -> str:
    """How many steps each rank has made."""
    return "\n".join(
        f"rank {rank_obs.rank} is in step {rank_obs.actual['steps'] + 1}, where it waits for all "
        "others"
        if rank_obs.actual["returned"] == IN_STEP
        else f"rank {rank_obs.rank} left after step {rank_obs.actual['steps']}"
        for rank_obs in obs.all_ranks
    )


def count_error(obs: Observation) -> Any:
    """By how much the returned number is wrong, or what it is instead of a number."""
    returned = obs.actual["returned"]
    return returned - obs.actual["steps"] if is_index(returned) else returned


STOP_CONDITION = "if told > 0:"
CHECK = DistributedCheck(
    cases=cases,
    make_args=lambda case: (case,),
    caller=run_training,
    observe=lambda obs, case: obs,
    call_text=call_text,
    compare={
        "together": Comparison(
            "Write down for each rank what it knows at the end of this step. By what does each "
            "decide whether to leave?",
            "together",
            select=outcome,
            actual=describe_ranks,
            required=lambda obs: (
                f"all ranks leave after step {obs.case.step}, or after the next one"
                if obs.case.ranks
                else f"all ranks make {STEPS} steps"
            ),
        ),
        "count": Comparison(
            "How many calls of step() have ended when the function returns, on each path?",
            0,
            select=count_error,
            actual=lambda obs: f"{in_words(obs.actual['returned'])} on rank {obs.rank}",
            required=lambda obs: f"{obs.actual['steps']}: so many steps were made",
        ),
    },
    mistakes={
        "This rank leaves, and the others make the next step. What do they know by then, and who "
        "tells them?": edit("dist.all_reduce(told)", "pass"),
        "A signal may come when this rank's part is on its way. By what does this rank decide, "
        "and by what do the others?": [
            edit(STOP_CONDITION, "if heard:"),
            edit(STOP_CONDITION, "if told > 0 or heard:"),
        ],
        "Only rank 0's word counts here. Any rank may be the one that is told.": edit(
            "all_reduce(told)", "broadcast(told, src=0)"
        ),
        "A rank that has heard nothing stops the others from leaving. What is the result if one of "
        "the ranks has 1 and the others have 0?": edit(
            "all_reduce(told)", "all_reduce(told, dist.ReduceOp.MIN)"
        ),
        "What does the sum come to if several ranks are told, or one is told twice?": edit(
            STOP_CONDITION, "if told == 1:"
        ),
        "The machine is needed soon, and steps may be long. How often do the ranks ask?": edit(
            STOP_CONDITION, "if told > 0 and done % 6 == 0:"
        ),
        "Every rank stops here, and nobody was told anything.": edit(STOP_CONDITION, "if True:"),
        "Which number do you return if a signal ends the loop, and which at its end?": [
            edit("return done", "return done - 1"),
            edit("return done", "return steps"),
        ],
        "The last step was made as well. Which of your steps was counted?": edit(
            "return steps", "return done - 1"
        ),
    },
    errors={
        "hangs": "In which collective does each rank wait, or has it left? All make the same calls "
        "in the same order: also a rank that has heard, until all of them know.",
        "SIGUSR1": "Without a handler this signal ends the process. When is yours in place, and is "
        "it still there when the signal comes?",
    },
    on_pass="told at 4 moments of a step, all ranks leave after the same one, at 1 to 4 ranks",
)
