"""In a rank: makes the calls of a check one after another, and records each of them."""

import random
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn

from ddp_workbook.diagnostics import user_code
from ddp_workbook.exercises.judging.check import OnRanks, ask
from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.exercises.judging.result_validation import refuse_what_cannot_travel
from ddp_workbook.exercises.judging.values import in_words
from ddp_workbook.exercises.judging.watch import Watch

UNWAITED = (
    "An operation may end later than the function that started it. Which line waits for the ones "
    "that yours has started?"
)
SEED = 20_000  # of a rank's random numbers; no check uses it or one near it
WORKING_ON = "still at work when your function returned"


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
    ):
        self.name, self.size, self.only, self.progress = name, size, only, progress
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
                wait_for_the_others(number) if check.group else None
                with open(self.progress, "r+") as file:  # not emptied: a rank may be killed here
                    file.write(f"{number}")
            ranks = [rank] if check.group else range(check.ranks_of(case, self.size))
            if self.only and self.only[1] is not None:
                ranks = [self.only[1]]
            late = check.group and comes_late(number, rank, self.size)
            pause = check.pause if late else 0
            seen.append([self.call(check, function, case, one, pause) for one in ranks])
        for returned, one in self.returned:
            one["overwritten"] = not unchanged(returned, one["came"])
        return seen

    def call(self, check: OnRanks, function: Callable, case: Any, rank: int, pause: float) -> dict:
        """One call, `pause` seconds after its arguments are made, for which ranks may have to meet.

        Returns what was observed, the wire, and the arguments that have changed.
        """
        arguments = check.arguments(case, rank)
        before = [copied(one) for one in arguments] if check.keeps else []
        held = [one.detach() if isinstance(one, torch.Tensor) else one for one in arguments]
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
        refuse_what_cannot_travel(self.name, returned) if check.observe is None else None
        came = copied(check.observe(returned, *held) if check.observe else returned)
        changed = [
            name
            for name, one, was in zip(parameters(self.name), held, before, strict=False)
            if not unchanged(one, was)
        ]
        one = {"came": came, "wire": watch.rows, "changed": changed}
        self.returned += [] if check.observe else [(returned, one)]
        return one


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
def wait_for_the_others(number: int) -> None:
    """Wait until every rank has made this call, through the store, so that nothing is recorded."""
    store = dist.distributed_c10d._get_default_store()
    if store.add(f"calls {number}", 1) == dist.get_world_size():
        store.set(f"all {number}", "")
    store.wait([f"all {number}"])


def copied(value: Any) -> Any:
    """The value with memory of its own, so that it does not change later."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, numpy.ndarray):
        return value.copy()
    if isinstance(value, nn.Module):
        return {name: copied(one) for name, one in value.state_dict().items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if type(value) is dict:
        return {key: copied(one) for key, one in value.items()}
    return value


def unchanged(now: Any, before: Any) -> bool:
    """Whether a value is unchanged, bit for bit."""
    if now is before:
        return True
    if isinstance(now, nn.Module):
        now = copied(now)
    if isinstance(now, torch.Tensor) != isinstance(before, torch.Tensor):
        return False
    if isinstance(now, torch.Tensor):
        both_nan = (now != now) & (before != before) if now.shape == before.shape else None
        return both_nan is not None and (now.is_meta or bool(((now == before) | both_nan).all()))
    if isinstance(now, numpy.ndarray):
        return bool(numpy.array_equal(now, before))
    if type(now) in (list, tuple):
        alike = type(now) is type(before) and len(now) == len(before)
        return alike and all(map(unchanged, now, before))
    if type(now) is dict:
        return list(now) == list(before) and all(unchanged(now[k], before[k]) for k in now)
    return bool(now == before)
