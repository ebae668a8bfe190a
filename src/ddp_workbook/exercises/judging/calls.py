"""In a rank: makes the calls of a check one after another, and records each of them."""

import contextlib
import random
import time
import types
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from ddp_workbook.diagnostics import user_code
from ddp_workbook.exercises.judging import unordered
from ddp_workbook.exercises.judging.check import OnRanks, ask
from ddp_workbook.exercises.judging.in_rank import prepare
from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.exercises.judging.result_validation import refuse_what_cannot_travel
from ddp_workbook.exercises.judging.snapshots import change, copied, snapshot, unchanged
from ddp_workbook.exercises.judging.values import in_words
from ddp_workbook.exercises.judging.watch import Watch

UNWAITED = (
    "An operation may end later than the function that started it. Which line waits for the ones "
    "that yours has started?"
)
SEED = 20_000  # of a rank's random numbers; no check uses it or one near it
WORKING_ON = "still at work when your function returned"
MEETINGS = count()  # of this rank with the others


class Calls:
    """Makes the calls of an exercise's check at this world size.

    `only` names a single call: its number and, for `Alone`, the rank that it is made for, or None.
    The file `progress` is written to when a call after the first one is made.
    """

    def __init__(
        self,
        name: str,
        size: int,
        only: tuple[int, int | None] | None = None,
        progress: str = "",
        pauses: bool = True,
    ):
        self.name, self.size, self.only, self.progress = name, size, only, progress
        self.pauses = pauses  # whether some ranks come late, so that a missing wait shows
        self.returned: list[tuple[Any, dict]] = []  # of each call: the object, and what was seen

    def __call__(self, function: Callable) -> list[list[dict]]:
        """In a rank: for each call, and each time that it is made here, what was seen."""
        check: OnRanks = import_module(f"ddp_workbook.exercises.{self.name}").CHECK
        rank = dist.get_rank() if check.group else 0
        random.seed(SEED + rank)  # unseeded random numbers differ between the ranks
        torch.manual_seed(SEED + rank)
        seen = []
        for number, case in enumerate(check.cases_of(self.size)):
            if self.only and number != self.only[0]:
                continue
            if number and not self.only:
                wait_for_the_others() if check.group else None
                self.note_progress(number)
            ranks = [rank] if check.group else range(check.ranks_of(case, self.size))
            if self.only and self.only[1] is not None:
                ranks = [self.only[1]]
            late = self.pauses and check.group and comes_late(number, rank, self.size)
            pause = check.pause if late else 0
            seen.append([self.call(check, function, case, one, pause) for one in ranks])
        for returned, one in self.returned:
            one["overwritten"] = not unchanged(returned, one["came"])
        return seen

    def note_progress(self, number: int) -> None:
        """Write the number of the call to the file, if there is one."""
        if self.progress:
            with open(self.progress, "r+") as file:  # not emptied: a rank may be killed here
                file.write(f"{number}")

    def call(self, check: OnRanks, function: Callable, case: Any, rank: int, pause: float) -> dict:
        """One call, `pause` seconds after its arguments are made, for which ranks may have to meet.

        Returns what was observed, the wire, and the arguments that have changed.
        """
        arguments = check.arguments(case, rank)
        before = [snapshot(one) for one in arguments] if check.keeps else []
        time.sleep(pause)
        with Watch(partial(said, check, self.name, case, rank)) as watch:
            call = check.caller or (lambda function, *arguments: function(*arguments))
            returned = call(function, *arguments)
        if watch.unwaited:
            raise NotYet(
                said(check, self.name, case, rank),
                f"on rank {rank}, {watch.in_words()} {WORKING_ON}",
                "no operation is still running when the function returns",
                UNWAITED,
            )
        names = parameters(self.name) if before else []
        changed = [
            words
            for name, one, was in zip(names, arguments, before, strict=False)
            if (words := change(name, was, snapshot(one)))
        ]
        refuse_what_cannot_travel(self.name, returned) if check.observe is None else None
        came = copied(check.observe(returned, *arguments) if check.observe else returned)
        one = {"came": came, "wire": watch.rows, "changed": changed}
        self.returned += [] if check.observe else [(returned, one)]
        return one


class WithSolution:
    """Makes the calls with the solution first, whose text this is, then with the attempt."""

    def __init__(self, calls: Calls, text: str):
        self.calls, self.text = calls, text

    def __call__(self, function: Callable) -> tuple[list[list[dict]], list[list[dict]]]:
        """In a rank: what was seen of the attempt, and of the solution in all calls."""
        solution = Calls(self.calls.name, self.calls.size, pauses=False)
        seen = solution(defined(self.text, self.calls.name))
        wait_for_the_others() if dist.is_initialized() else None
        return self.calls(function), seen


class Variants:
    """A worker: makes the calls of a check with the function of each text, one after another."""

    def __init__(self, name: str, size: int, only: int | None, texts: Sequence[str]):
        self.name, self.size, self.only, self.texts = name, size, only, texts

    def __call__(self) -> list[list[list[dict]] | None]:
        """In a rank: by text, what was seen in each call; None if it raised here."""
        group = import_module(f"ddp_workbook.exercises.{self.name}").CHECK.group
        prepare(group)
        seen = []
        for text in self.texts:
            seen.append(self.seen_of(text))
            wait_for_the_others() if group else None
        return seen

    def seen_of(self, text: str) -> list[list[dict]] | None:
        """What was seen in each call."""
        only = None if self.only is None else (self.only, None)
        with contextlib.suppress(Exception):
            return Calls(self.name, self.size, only, pauses=False)(defined(text, self.name))
        return None


def defined(text: str, name: str) -> Callable:
    """The function `name` of a cell that is the solution, or an edit of it."""
    module = types.ModuleType(name)
    exec(unordered.compiled(text, f"<{name}>", module.__dict__), module.__dict__)
    return module.__dict__[name]


def said(check: OnRanks, name: str, case: Any, rank: int, part: str = "") -> str:
    """A call in words; `part` is the key in question if a dict is compared."""
    if callable(check.called):
        return ask(check.called, case, part)
    arguments = check.arguments(case, rank) if "{given}" in check.called else ()
    given = ", ".join(map(in_words, arguments))
    return check.called.format(name=name, case=in_words(case), given=given, part=part)


def parameters(name: str) -> list[str]:
    """The names of the arguments of this exercise's function."""
    return list(
        signature(getattr(import_module(f"ddp_workbook.exercises.{name}"), name)).parameters
    )


def comes_late(call: int, rank: int, size: int) -> bool:
    """Whether this rank is late: all but rank 0 in the first call, then rank 0, then the last."""
    late = (set(range(1, size)), {0}, {size - 1})
    return call < len(late) and size > 1 and rank in late[call]


@user_code.wait_in
def wait_for_the_others() -> None:
    """Wait until every rank has come here, through the store, so that nothing is recorded."""
    store, number = dist.distributed_c10d._get_default_store(), next(MEETINGS)
    if store.add(f"calls {number}", 1) == dist.get_world_size():
        store.set(f"all {number}", "")
    store.wait([f"all {number}"])
