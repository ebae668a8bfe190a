"""In a rank: makes the calls of a check with one function after another, and records each call."""

import contextlib
import os
import random
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddp_workbook.judging import set_order
from ddp_workbook.judging.attempts import YOUR_CELL
from ddp_workbook.judging.call_recorder import CallRecorder
from ddp_workbook.judging.check import DistributedCheck, load
from ddp_workbook.judging.guard import (
    WHOLE_CELL,
    function_in,
    no_exit,
    refuse_unpicklable,
    state_unchanged,
)
from ddp_workbook.judging.set_order import RankOrderedSet
from ddp_workbook.judging.snapshots import change, copied, snapshot, unchanged
from ddp_workbook.judging.source import FOLDER
from manyranks.diagnostics import exceptions, user_code
from manyranks.launcher.process_group import set_up

CHECK_FOLDERS = (os.path.dirname(__file__), str(FOLDER))  # its own lines are not the reader's
LATE_S = 0.03  # seconds by which some ranks are late, so that a missing wait shows
SEED = 20_000  # of a rank's random numbers; no check uses it or one near it
BARRIER_NUMBERS = count()  # of the barriers of this rank
OnlyCall = (
    tuple[int, int | None] | None
)  # a call's number and, for `SingleProcessCheck`, perhaps its rank
# By call, and each time that it is made here: the fields of an `Observation`
Records = list[list[dict]]


class InRank:
    """A worker: makes the calls of an exercise's check with the functions of some cells, in turn.

    First `solution` makes all calls; then the cells `variants`, last the attempt in the file `path`
    make them, or the only one that is named. "" and None stand for no cell. The attempt writes to
    the file `progress` when it makes a call after the first one.
    """

    def __init__(
        self,
        name: str,
        size: int,
        solution: str = "",
        variants: Sequence[str] = (),
        path: Path | None = None,
        only: OnlyCall = None,
        progress: str = "",
        seeds: tuple[int, ...] = (),
    ):
        self.name, self.size, self.solution, self.variants = name, size, solution, variants
        self.path, self.only, self.progress = path and str(path), only, progress
        self.seeds = seeds  # of random calls
        user_code.hide(*CHECK_FOLDERS)  # from the reports, which this process makes

    def __call__(self) -> list[Records | None]:
        """By cell, what was seen in each call; None if it raised here."""
        check = load(self.name)
        check.seeds = self.seeds
        self.prepare(check.group)
        attempt = GuardedFunction(check, self.path) if self.path else None
        records: list[Records | None] = []
        cells = [(text, self.only) for text in self.variants]
        for text, only in [(self.solution, None), *cells] if self.solution else cells:
            records.append(None)
            with contextlib.suppress(Exception):
                records[-1] = self.make_calls(check, load_function(text, self.name), only)
            reported_barrier() if check.group else None
        if attempt:
            records.append(self.make_calls(check, attempt, self.only, pauses=True))
            refuse_unpicklable(self.name, records[-1])
        return records

    def prepare(self, group: bool) -> None:
        """Make the process group, if there is one, and hide the check's own lines from reports."""
        user_code.hide(*CHECK_FOLDERS)
        if self.path:
            user_code.set_display_name(self.path, YOUR_CELL)
            threading.excepthook = print_thread_error
        # torch 2.13 has new names for two collectives; the old ones are right as well.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
        set_up(bare=not group)

    def make_calls(
        self, check: DistributedCheck, function: Callable, only: OnlyCall, pauses: bool = False
    ) -> Records:
        """What was seen in each call; with `pauses` some ranks come late to some calls."""
        rank = dist.get_rank() if check.group else 0
        random.seed(SEED + rank)  # unseeded random numbers differ between the ranks
        torch.manual_seed(SEED + rank)
        records: Records = []
        returned: list[tuple[Any, dict]] = []  # the object itself, and what was seen of it
        for number, case in enumerate(check.cases_of(self.size)):
            if only and number != only[0]:
                continue
            if number and not only:
                reported_barrier() if check.group else None
                if pauses and self.progress:
                    with open(self.progress, "r+") as file:  # not emptied: it may be killed here
                        file.write(f"{number}")
            ranks = [rank] if check.group else range(check.ranks_of(case, self.size))
            if only and only[1] is not None:
                ranks = [only[1]]
            late = pauses and check.group and is_late(number, rank, self.size)
            records.append([])
            for call_rank in ranks:
                actual, record = record_call(
                    check, function, case, call_rank, LATE_S if late else 0
                )
                records[-1].append(record)
                returned += [] if check.observe else [(actual, record)]
        for actual, record in returned:
            record["overwritten"] = not unchanged(actual, record["actual"])
        return records


def record_call(
    check: DistributedCheck, function: Callable, case: Any, rank: int, pause: float
) -> tuple[Any, dict]:
    """What a call has returned, and the fields of an `Observation`; it is `pause` seconds late.

    It is late after its arguments are made, for which ranks may have to meet.
    """
    arguments = check.arguments(case, rank)
    before = [snapshot(argument) for argument in arguments] if check.unchanged_hint else []
    orders = RankOrderedSet.random_orders
    time.sleep(pause)
    with CallRecorder(partial(check.describe_call, case, rank)) as recorder:
        caller = check.caller or (lambda function, *arguments: function(*arguments))
        returned = caller(function, *arguments)
    recorder.refuse_pending(rank)
    names = signature(check.function).parameters if before else ()
    changes = [
        change(name, was, snapshot(argument))
        for name, argument, was in zip(names, arguments, before, strict=False)
    ]
    refuse_unpicklable(check.name, returned) if check.observe is None else None
    return returned, {
        "actual": copied(check.observe(returned, *arguments) if check.observe else returned),
        "communication": recorder.rows,
        "changed_arguments": [words for words in changes if words],
        "nondeterministic": RankOrderedSet.random_orders > orders,
    }


def is_late(call: int, rank: int, size: int) -> bool:
    """Whether this rank is late: all but rank 0 in the first call, then rank 0, then the last."""
    late = (set(range(1, size)), {0}, {size - 1})
    return call < len(late) and size > 1 and rank in late[call]


@user_code.mark_finished_wait
def reported_barrier() -> None:
    """Meet where a report says that this rank has returned."""
    store_barrier()


def store_barrier() -> None:
    """Wait until every rank has come here, through the store, so that nothing is recorded."""
    store, number = dist.distributed_c10d._get_default_store(), next(BARRIER_NUMBERS)
    if store.add(f"calls {number}", 1) == dist.get_world_size():
        store.set(f"all {number}", "")
    store.wait([f"all {number}"])


def load_function(text: str, name: str) -> Callable:
    """The function `name` of a cell that is the solution, or an edit of it."""
    module = types.ModuleType(name)
    exec(set_order.compile_cell(text, f"<{name}>", module.__dict__), module.__dict__)
    return module.__dict__[name]


class GuardedFunction:
    """The reader's function; CheckFailed if it changes the state of the process or exits.

    Raises CheckFailed if its cell does that, or defines no function that takes the same arguments.
    """

    calls = 0

    def __init__(self, check: DistributedCheck, path: str):
        self.name, self.may_seed = check.name, check.may_seed
        module = types.ModuleType(self.name)
        module.__file__ = path
        sys.modules[self.name] = module  # so that a class of the attempt can be pickled
        code = set_order.compile_cell(Path(path).read_text("utf-8"), path, module.__dict__)
        module.__dict__["hash"] = process_dependent_hash
        with (
            state_unchanged(WHOLE_CELL, may_seed=self.may_seed),
            no_exit(WHOLE_CELL, "a cell that runs to its end"),
        ):
            exec(code, module.__dict__)
        self.function = function_in(module, check.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns; CheckFailed if it has changed the process, or exits."""
        GuardedFunction.calls += 1
        with (
            state_unchanged(self.name, may_seed=self.may_seed),
            no_exit(self.name, "a function that returns to its caller, or raises an error"),
        ):
            return self.function(*args, **kwargs)


def process_dependent_hash(value: Any) -> int:
    """The hash() of the reader's cell: for strings, it differs between ranks and calls.

    Ranks here are forks of one process. Under torchrun each has its own hash seed.
    """
    if not contains_text(value):
        return hash(value)
    RankOrderedSet.random_orders += 1
    return hash((value, os.environ["RANK"], GuardedFunction.calls))


def contains_text(value: Any) -> bool:
    """Whether Python's hash of a value depends on the process."""
    if isinstance(value, tuple | frozenset):
        return any(map(contains_text, value))
    return isinstance(value, str | bytes)


def print_thread_error(error: threading.ExceptHookArgs) -> None:
    """Print an exception that ended a thread of the reader's, with only the reader's own lines."""
    value = error.exc_value or error.exc_type()
    pages = traceback.TracebackException(error.exc_type, value, error.exc_traceback)
    exceptions.shorten(pages)
    print(f"In a thread: {''.join(pages.format()).rstrip()}", file=sys.stderr)
