"""Run all replicas at the same time, each in a thread of its own.

Call replica i with input i. Return a list with one output for each input, in the order of the
inputs, whichever replica finishes first. There is at least one input, and there can be fewer inputs
than replicas; then the last replicas are not called. The caller must not notice the threads:

- If a replica raises an exception, your function raises it too, with the same type and text.
- When your function returns or raises, every thread that it started has ended.
- Inside the caller's `torch.no_grad()` the outputs require no gradient. Outside they do.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn

from ddp_workbook.judging import CheckFailed, Comparison, Pattern, SingleProcessCheck, in_words

MINUTES = 15
HINTS = [
    "A thread returns nothing, neither a result nor an exception, and you must start all threads "
    "before you wait for the first. What does concurrent.futures offer?",
    "ThreadPoolExecutor can call one function on several lists, side by side. It yields the "
    "results in order and raises their exceptions, and its `with` waits for the threads. How "
    "many threads do you need?",
    "Whether gradients are computed is a setting of each thread, and a new thread starts with "
    "True. Ask torch.is_grad_enabled() in the caller's thread; set it in the others.",
]


def parallel_apply(replicas: list[nn.Module], inputs: list[Tensor]) -> list[Tensor]:
    """Call replica i with input i, all at the same time; the outputs, in order."""
    ### BEGIN SOLUTION
    wanted = torch.is_grad_enabled()  # asked here, because a new thread always says True

    def run(replica: nn.Module, rows: Tensor) -> Tensor:
        with torch.set_grad_enabled(wanted):
            return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(run, replicas, inputs))  # ends with the shorter list
    ### END SOLUTION


class Replicas(NamedTuple):
    """A call: how many replicas and inputs, and what is special about it."""

    replicas: int
    inputs: int
    grad: bool = True
    bad: int | None = None  # the replica that raises
    error: type[Exception] = ValueError


FACTORS = (2.0, 3.0, 5.0, 7.0, 11.0, 13.0)  # replica i multiplies by the i-th
INPUTS = (1.0, -10.0, 100.5, 1000.0, 0.25, -0.5)
POLL_S = 0.005  # seconds between two looks of a replica that waits
MAX_POLLS = 200  # looks until it gives up; a busy machine makes each of them longer
MAX_STUCK_POLLS = 40  # the same, if all threads of the call are replicas that wait
ITERATOR = "an iterator"


class Rendezvous:
    """What the replicas of a call know of each other, and what was seen of them."""

    def __init__(self, case: Replicas):
        self.case, self.threads_before = case, set(threading.enumerate())
        self.calls: list[int] = []
        self.running: list[int] = []
        self.exits: list[int] = []
        self.waiting: set[threading.Thread] = set()
        self.max_running = 0
        self.is_over, self.max_polls = False, MAX_POLLS

    def __deepcopy__(self, memo: dict) -> "Rendezvous":
        """Refuse: a copied thread would close, when it is freed, what the real one reads from."""
        raise TypeError("cannot pickle what replicas share")

    def wait(self, holds: Callable[[], bool], max_polls: int = MAX_POLLS) -> None:
        """Until that holds, or for so long that it will not; briefly once a wait was in vain."""
        stuck, thread = 0, threading.current_thread()
        self.waiting.add(thread)
        for _ in range(min(max_polls, self.max_polls)):
            if holds() or stuck == MAX_STUCK_POLLS:
                break
            time.sleep(POLL_S)
            stuck += set(threading.enumerate()) <= self.threads_before | self.waiting
        self.waiting.discard(thread)
        if not holds():
            self.max_polls = 4


class Multiply(nn.Module):
    """Replica i: when all have come, multiplies by the i-th factor; the last replica ends first."""

    def __init__(self, number: int, rendezvous: Rendezvous):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(FACTORS[number]))
        self.number, self.rendezvous = number, rendezvous

    def forward(self, rows: Tensor) -> Tensor:
        """rows * factor."""
        rendezvous, case = self.rendezvous, self.rendezvous.case
        rendezvous.calls.append(self.number)
        rendezvous.running.append(self.number)
        rendezvous.max_running = max(rendezvous.max_running, len(rendezvous.running))
        try:
            rendezvous.wait(lambda: len(rendezvous.calls) >= case.inputs)
            if self.number == case.bad:
                raise case.error(f"replica {self.number} cannot read its rows")
            if case.bad is not None:
                # It runs when the exception comes out.
                rendezvous.wait(lambda: rendezvous.is_over, 20)
            elif self.number < case.inputs - 1:
                rendezvous.wait(lambda: self.number + 1 in rendezvous.exits)
            return rows * self.factor
        finally:
            rendezvous.exits.append(self.number)
            rendezvous.running.remove(self.number)


def make_args(case: Replicas) -> tuple[list[nn.Module], list[Tensor]]:
    """Replicas that share a rendezvous, and inputs; the last is the shortest."""
    rendezvous = Rendezvous(case)
    rows = [2] * (case.inputs - 1) + [1]
    inputs = [torch.full((n, 1), x) for n, x in zip(rows, INPUTS, strict=False)]
    return [Multiply(number, rendezvous) for number in range(case.replicas)], inputs


def call_and_observe(function: Callable, replicas: list[nn.Module], inputs: list[Tensor]) -> dict:
    """Call it as the case says; threads begin late, and join with a timeout has little patience."""
    rendezvous: Rendezvous = replicas[0].rendezvous
    start, join = threading.Thread.start, threading.Thread.join

    def start_late(thread: threading.Thread) -> None:
        def run_late(run: Callable[[], None] = thread.run) -> None:
            time.sleep(POLL_S)
            run()

        vars(thread)["run"] = run_late
        start(thread)

    def join_briefly(thread: threading.Thread, timeout: float | None = None) -> None:
        join(thread, None if timeout is None else min(timeout, POLL_S / 5))

    with (
        torch.set_grad_enabled(rendezvous.case.grad),
        patch.object(threading.Thread, "start", start_late),
        patch.object(threading.Thread, "join", join_briefly),
        patch.object(os, "cpu_count", lambda: 1),  # a pool asks it how many threads are enough
        patch.object(os, "process_cpu_count", lambda: 1, create=True),  # from Python 3.13 on
    ):
        try:
            outcome = make_picklable(function(replicas, inputs))
        except Exception as error:
            if rendezvous.case.bad is None or isinstance(error, CheckFailed):
                raise
            outcome = f"{type(error).__name__}: {error}"
    outputs = outcome if isinstance(outcome, list | tuple) else []
    leftover = leftover_thread(rendezvous)
    is_complete = len(rendezvous.calls) == len(inputs)
    rendezvous.is_over = True
    return {
        "leftover": leftover,
        "calls": sorted(rendezvous.calls),
        "max_running": rendezvous.max_running if is_complete else len(inputs),
        "outcome": outcome,
        "grads": {output.requires_grad for output in outputs if isinstance(output, Tensor)},
    }


def make_picklable(outcome: Any) -> Any:
    """The outcome, but with a name for each iterator, future or thread, which cannot be sent."""
    if isinstance(outcome, Iterator):
        return ITERATOR
    if not isinstance(outcome, list | tuple):
        return outcome
    return [
        f"a {type(output).__name__}" if isinstance(output, Future | threading.Thread) else output
        for output in outcome
    ]


def leftover_thread(rendezvous: Rendezvous) -> str:
    """Which thread has not ended; one that has nothing to do is given a moment."""
    if rendezvous.running:
        return f"replica {rendezvous.running[0]} was still running"
    for _ in range(20):
        if not set(threading.enumerate()) - rendezvous.threads_before:
            return ""
        time.sleep(POLL_S)
    return "a thread was left"


def expected(case: Replicas) -> list[Tensor] | str:
    """The outputs, or the exception."""
    if case.bad is not None:
        error = case.error(f"replica {case.bad} cannot read its rows")
        return f"{case.error.__name__}: {error}"
    return [rows * factor for rows, factor in zip(make_args(case)[1], FACTORS, strict=False)]


def call_text(case: Replicas) -> str:
    """Factors, inputs, and what is special, as the verdict says it."""
    factors = ", ".join(f"{factor:g}" for factor in FACTORS[: case.replicas])
    text = f"replicas that multiply by {factors}; inputs {in_words(make_args(case)[1])}"
    if not case.grad:
        text += "; inside torch.no_grad()"
    if case.bad is not None:
        text += f"; replica {case.bad} raises a {case.error.__name__}"
    return text


FEWER = "There can be fewer inputs than replicas. How far does your loop go?"
CHECK = SingleProcessCheck(
    cases=[
        Replicas(4, 4),
        Replicas(4, 3),
        Replicas(4, 4, grad=False),
        Replicas(4, 4, bad=0),
        Replicas(4, 4, bad=3, error=KeyError),
        Replicas(1, 1),
        Replicas(2, 1, grad=False),
        Replicas(3, 3, bad=1, error=OSError),
        Replicas(6, 6),
        Replicas(4, 1),
        Replicas(4, 4),
    ],
    call_text=call_text,
    make_args=make_args,
    caller=call_and_observe,
    compare={
        "leftover": Comparison(
            "What waits until every thread has ended, however long that takes, and even "
            "if a replica raises an exception? What ends the threads of a pool?",
            "",
            timing_dependent=True,
            actual="{value} when the call was over",
            required="no thread is left then",
        ),
        "max_running": Comparison(
            "How many threads may work at the same time, and how many replicas are to run?",
            lambda case: case.inputs,
            actual="at most {value} ran at the same time",
            required="all {expected} run at the same time",
        ),
        "calls": Comparison(
            "Replica i gets input i, and is not called if there is none. Which one "
            "gets which in your code?",
            lambda case: list(range(case.inputs)),
            actual="calls of the replicas, counted from 0: {value}",
            required="one call of each of {expected}",
        ),
        "outcome": Comparison(
            "Replica i gets input i. What happens to an input or an output on its way?", expected
        ),
        "grads": Comparison(
            "A backward pass will follow. What has separated the outputs from the weights?",
            lambda case: set() if case.bad is not None else {case.grad},
            actual=lambda obs: (
                f"outputs that require {'a' if True in obs.value else 'no'} gradient"
            ),
            required=lambda obs: f"outputs that require {'a' if obs.case.grad else 'no'} gradient",
        ),
    },
    mistakes={
        "They took turns. Are there other threads, and did you wait for one call before "
        "you made the next?": Pattern(lambda obs: obs.value == 1, "max_running"),
        "Several calls have taken the last replica. When does a function read the variable "
        "of the loop around it, when it is defined or when it runs?": Pattern(
            lambda obs: obs.value.count(obs.case.inputs - 1) > 1, "calls"
        ),
        "An exception ends only its own thread. What catches it there and passes it to "
        "the caller?": Pattern(
            lambda obs: isinstance(obs.value, list | tuple) and obs.case.bad is not None, "outcome"
        ),
        "This is not the replica's own exception. What became of that in its thread?": Pattern(
            lambda obs: isinstance(obs.value, str) and obs.case.bad is not None, "outcome"
        ),
        "Is this a list with a tensor for each input? map gives an iterator, and joining "
        "the outputs is the work of gather.": Pattern(
            lambda obs: not isinstance(obs.value, list | tuple), "outcome"
        ),
        "The right outputs, in another order. Which came first in this list?": Pattern(
            lambda obs: sorted(map(in_words, obs.value)) == sorted(map(in_words, obs.expected)),
            "outcome",
        ),
        "Not all of these are outputs of a replica. How does an output leave its thread, "
        "and which method of a future returns it?": Pattern(
            lambda obs: {Tensor} < {Tensor, *map(type, obs.value)}, "outcome"
        ),
        "A new thread starts with gradients on. Which line asks what the caller has set?": Pattern(
            lambda obs: not obs.case.grad, "grads"
        ),
    },
    errors={
        "zip() argument": FEWER,
        "index out of range": FEWER,
        "'Tensor' object is not callable": "submit takes the replica and its input, one after the "
        "other, and calls the replica in a thread. What does yours get?",
        "cannot pickle": "Threads share the caller's memory, so no replica has to be sent "
        "anywhere, and no copy is needed.",
        "accelerator": "PyTorch's own function wants GPUs. Yours is to run on a CPU as well.",
        "for *: 'NoneType'": FEWER,
    },
    on_pass="1 to 6 replicas run at once, in order, with small batches, no_grad and exceptions",
)
