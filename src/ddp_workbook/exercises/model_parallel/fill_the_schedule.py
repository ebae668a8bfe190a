"""Write a schedule for three pipeline stages and five micro-batches.

Return three lines of text, one for each rank, in the form of this page's grid: F2 is the forward of
micro-batch 2, and its backward is B2, or the two halves I2 (inputs) and W2 (weights). The rank runs
its line from left to right, and waits where an input is not there yet. Dots are holes for your
eyes. Rank r has stage r.

- Each rank runs all five micro-batches, numbered 0 to 4, forward and backward.
- On no rank are more than 3 micro-batches in flight. A micro-batch is in flight from its F to the
  end of its B or W.
- The bubble is at most 17 %: with F, I and W each as long as a forward, and B as long as two, all
  is done after 18 forwards.
- Real ranks run it in PyTorch, and their gradients are those of one process.

Any such schedule is right. You begin with GPipe's, which has 5 in flight and a bubble of 29 %.
"""

from collections.abc import Callable
from operator import le
from typing import Any

from ddp_workbook.judging import Comparison, Observation, Pattern, SingleProcessCheck
from ddp_workbook.judging.pipeline_runs import what_went_wrong
from ddp_workbook.judging.pipeline_schedules import (
    BACKWARD,
    FORWARD,
    INPUTS,
    Schedule,
    ScheduleRefused,
    read,
)

MINUTES = 8
HINTS = [
    "Draw the three lines as columns of equal length. First keep the memory: which backward can a "
    "rank run before its fourth forward?",
    "That is 1F1B, whose bubble is 29 %, too. The stage before waits for I only, so halve each B.",
    "A W may come as late as you like, but it keeps its micro-batch in flight. Use it where a rank "
    "would wait for the I of the next stage; rank 0 has to wait longest.",
]
RANKS, MICRO_BATCHES = 3, 5
MOST_IN_FLIGHT, MOST_BUBBLE = 3, 0.17


def fill_the_schedule() -> list[str]:
    """The line of each rank."""
    ### BEGIN SOLUTION
    return [
        "F0 F1 F2 . . I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4",
        ". F0 F1 . I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4",
        ". . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4",
    ]
    ### GIVEN
    # return [  # TODO: your three lines in place of GPipe's
    #     "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4",
    #     "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4",
    #     "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4",
    # ]
    ### END SOLUTION


def schedule_of(obs: Observation) -> Schedule:
    """The schedule in the lines that came back. Raises ScheduleRefused."""
    return read(obs.actual, MICRO_BATCHES)


def refusal(obs: Observation) -> ScheduleRefused | None:
    """Why these lines cannot run; None if they can."""
    try:
        schedule_of(obs)
    except ScheduleRefused as refused:
        return refused
    return None


HINTS_BY_KIND = {
    "unreadable": "A cell is one letter and one number, with spaces between the cells.",
    "on_wrong_rank": "A number before the letter is a stage, and rank r has stage r alone.",
    "too_many": "Five micro-batches, counted from 0: what is the last one?",
    "twice": "Go through the line and cross off each micro-batch. Should this cell be another one, "
    "or go?",
    "both_kinds": "Which of them does this rank need?",
    "missing": "Go through the line and cross off each micro-batch, forward and backward.",
    "too_early": "What must a rank have computed, and kept, before it can run this cell?",
    "loss_not_there": "The last stage runs its forwards in another order than 0 to 4. Can it take "
    "them as they are numbered?",
    "deadlock": "Follow one of these waits from rank to rank. Which two cells must change places?",
}


def any_rank(condition: Callable[[list], bool]) -> Callable[[Observation], bool]:
    """Whether a rank's kinds of cells, in order, are so."""

    def matches(obs: Observation) -> bool:
        return any(condition([cell.kind for cell in row]) for row in schedule_of(obs).cells)

    return matches


def forwards_first(kinds: list) -> bool:
    """Whether all forwards are before any backward."""
    return kinds[:MICRO_BATCHES] == [FORWARD] * MICRO_BATCHES


def last_forwards(obs: Observation) -> list[int]:
    """The micro-batches of the last stage's forwards, in order."""
    return [cell.micro_batch for cell in schedule_of(obs).cells[-1] if cell.kind == FORWARD]


def by_rank(numbers: list[int]) -> str:
    """Each rank's number, in words."""
    return ", ".join(f"{number} on rank {rank}" for rank, number in enumerate(numbers))


def as_list(returned: Any) -> Any:
    """A list, where the lines are a tuple; one text with three lines is fine too."""
    if isinstance(returned, str):
        return returned.strip().splitlines()
    return list(returned) if isinstance(returned, tuple) else returned


CHECK = SingleProcessCheck(
    cases=[()],
    observe=as_list,
    compare={
        "form": "A list with three texts is asked for.",
        "lines": Comparison(
            "How many ranks are there?",
            RANKS,
            lambda obs: len(obs.actual),
            actual=lambda obs: f"{len(obs.actual)} line{'s' * (len(obs.actual) != 1)}",
        ),
        "schedule": Comparison(
            lambda obs: HINTS_BY_KIND[refusal(obs).kind],
            "",
            lambda obs: str(refusal(obs) or ""),
            actual="{value}",
            required="F0 to F4 on each rank, each with its backward, in an order that can run",
        ),
        "in flight": Comparison(
            "Count along the line: plus one at each F, minus one at each B or W. Where does it "
            "pass 3, and what could come before that?",
            MOST_IN_FLIGHT,
            lambda obs: max(schedule_of(obs).in_flight),
            actual=lambda obs: "in flight at most: " + by_rank(schedule_of(obs).in_flight),
            required="{expected} at most on each rank",
            equal=le,
        ),
        "bubble": Comparison(
            "Draw the lines as columns. Where does a rank wait, and which W could run there?",
            MOST_BUBBLE,
            lambda obs: schedule_of(obs).bubble,
            actual=lambda obs: (
                f"a bubble of {schedule_of(obs).bubble:.0%}: done after "
                f"{max(timed.end for timed in schedule_of(obs).timed):g} forwards"
            ),
            required="17 % at most: done after 18 forwards",
            equal=le,
        ),
        "gradients": Comparison(
            "Compare the order of the forwards and of the backwards on neighbouring ranks.",
            "",
            lambda obs: what_went_wrong(tuple(obs.actual), MICRO_BATCHES),
            actual="{value}",
            required="the gradients of one process on each rank",
        ),
    },
    mistakes={
        "A rank runs all its forwards first. Which backward could it run before the fourth?": (
            Pattern(any_rank(forwards_first), "in flight")
        ),
        "Each B is whole here, and the stage before waits for both halves of it. Which half does "
        "it need?": Pattern(lambda obs: not any_rank(lambda kinds: INPUTS in kinds)(obs), "bubble"),
        "Rank 1 or 2 has B that are whole, so the stage before waits for W as well. Must it?": (
            Pattern(
                lambda obs: any(
                    BACKWARD in [c.kind for c in r] for r in schedule_of(obs).cells[1:]
                ),
                "bubble",
            )
        ),
        "The last stage runs its forwards in another order than 0 to 4. PyTorch keeps the losses "
        "in that order, and looks them up by the number of the micro-batch.": Pattern(
            lambda obs: last_forwards(obs) != sorted(last_forwards(obs)), "gradients"
        ),
    },
    on_pass="5 micro-batches on 3 real ranks, at most 3 in flight, a bubble of at most 17 %, and "
    "the gradients of one process",
)
