"""Run all replicas at the same time, each in a thread of its own.

`scatter` has cut the batch, and replica i is called with input i. A small batch leaves the last
replicas without an input: they are not called. There is at least one input, and never more inputs
than replicas. A list comes back, with one output for each input, in the replicas' order, whoever
is done first. And the caller must not notice the threads:

- An exception that a replica raises comes out of your function, with its own type and text.
- Whether your function returns or raises, all its threads have ended by then.
- Inside the caller's `torch.no_grad()` the outputs require no gradient, outside they do.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from ddp_workbook.exercises import Attempt, NotYet, attempt_alone, in_words

HINTS = [
    "A thread gives nothing back, no result and no exception, and you must start all of them "
    "before you wait for the first. What does concurrent.futures offer?",
    "ThreadPoolExecutor can call one function on several lists, side by side. It hands out the "
    "results in order, exceptions included, and its `with` waits. How many threads do you need?",
    "Whether gradients are wanted is a setting of each thread, and every new one starts with yes. "
    "Ask torch.is_grad_enabled() in the caller's thread; set it in the others.",
]

FEWER = "A small batch has fewer inputs than there are replicas. How far does your loop go?"
FOR_ERRORS = {
    "zip() argument": FEWER,
    "index out of range": FEWER,
    "cannot pickle": "Threads share the caller's memory: no replica is copied or sent anywhere.",
    "accelerator": "PyTorch's own function wants GPUs. Yours is to run on a CPU as well.",
    "for *: 'NoneType'": FEWER,
}
SIZES = (1, 2, 3, 4)  # numbers of replicas
FACTORS = (2.0, 3.0, 5.0, 7.0)  # replica i multiplies by the i-th: no two products are equal
INPUTS = (1.0, 10.0, 100.0, 1000.0)
PATIENCE = 1.0  # seconds that a replica waits for the others, which come within milliseconds
STEP = 0.03  # seconds between one replica's end and the next one's
GRACE = 0.1  # seconds in which a thread without work may end


def parallel_apply(replicas: list[nn.Module], inputs: list[Tensor]) -> list[Tensor]:
    """Call replica i with input i, all at the same time; the outputs, in order."""
    ### BEGIN SOLUTION
    wanted = torch.is_grad_enabled()  # asked here, for a new thread always says yes

    def run(replica: nn.Module, rows: Tensor) -> Tensor:
        with torch.set_grad_enabled(wanted):
            return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(run, replicas, inputs))  # ends with the shorter list
    ### END SOLUTION


class Meeting:
    """Replicas with their inputs, of which replica `bad` raises; and what was seen of them."""

    def __init__(self, size: int, count: int, bad: int | None = None):
        self.before, self.barrier = set(threading.enumerate()), threading.Barrier(count)
        self.called, self.running, self.at_once, self.threads = [], [], [], set()
        sizes = [2] * (count - 1) + [1]  # as `scatter` cuts a batch
        self.inputs = [torch.full((n, 1), x) for n, x in zip(sizes, INPUTS, strict=False)]
        self.replicas = [Multiply(i, self) for i in range(size)]
        for i, replica in enumerate(self.replicas):  # the last is done first, or the bad one
            replica.seconds = STEP * (max(0, count - 1 - i) if bad is None else i != bad)
            replica.raises = i == bad
        factors = ", ".join(f"{factor:g}" for factor in FACTORS[:size])
        self.call = f"replicas that multiply by {factors}; inputs {in_words(self.inputs)}"
        self.call += "" if torch.is_grad_enabled() else "; inside torch.no_grad()"
        self.call += "" if bad is None else f"; replica {bad} raises a ValueError"


class Multiply(nn.Module):
    """Replica i: multiplies by the i-th factor, or raises, some time after all have met."""

    def __init__(self, number: int, meeting: Meeting):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(FACTORS[number]))
        self.number, self.meeting, self.seconds, self.raises = number, meeting, 0.0, False

    def forward(self, rows: Tensor) -> Tensor:
        """rows * factor."""
        meeting = self.meeting
        meeting.called.append(self.number)
        meeting.running.append(self.number)
        meeting.at_once.append(len(meeting.running))
        meeting.threads.add(threading.current_thread())
        try:
            with suppress(threading.BrokenBarrierError):  # somebody did not come: `at_once` tells
                meeting.barrier.wait(PATIENCE)
            time.sleep(self.seconds)
            if self.raises:
                raise ValueError(f"replica {self.number} cannot read its rows")
            return rows * self.factor
        finally:
            meeting.running.remove(self.number)


def check(attempt: Attempt, sizes: tuple[int, ...] = SIZES) -> str:
    """Let replicas meet; with fewer inputs, inside no_grad, and with one that raises, too."""
    attempt_alone(attempt, all_calls, case=tuple(sizes))
    return "1 to 4 replicas run at once, in order, with small batches, no_grad and exceptions"


def all_calls(parallel_apply: Any, sizes: tuple[int, ...]) -> None:
    """In a process of its own: every call of the check; NotYet from the first that goes wrong."""
    for size in sizes:
        outputs_come(parallel_apply, Meeting(size, size))
        outputs_come(parallel_apply, Meeting(size, max(1, size - 1)))
        with torch.no_grad():
            outputs_come(parallel_apply, Meeting(size, size))
        for bad in sorted({0, size - 1}):
            exception_comes(parallel_apply, Meeting(size, size, bad), bad)


def outputs_come(parallel_apply: Any, meeting: Meeting) -> None:
    """Raise NotYet unless all ran at the same time, and the outputs are the right ones."""
    outputs = parallel_apply(meeting.replicas, meeting.inputs)
    threads_have_ended(meeting)
    all_met(meeting)
    required = [rows * factor for rows, factor in zip(meeting.inputs, FACTORS, strict=False)]
    if look := look_at(outputs, required):
        raise NotYet(meeting.call, in_words(outputs), f"the list {in_words(required)}", look)
    wanted = torch.is_grad_enabled()
    if any(output.requires_grad != wanted for output in outputs):
        words = ["outputs that require no gradient", "outputs that require a gradient"]
        look = "A new thread starts with gradients on. Who asks what the caller has set, and where?"
        if wanted:
            look = "A backward pass is to follow. What has cut the outputs off from the weights?"
        raise NotYet(meeting.call, words[not wanted], words[wanted], look)


def exception_comes(parallel_apply: Any, meeting: Meeting, bad: int) -> None:
    """Raise NotYet unless the ValueError of replica `bad` comes out, after all have ended."""
    problem = f"ValueError: replica {bad} cannot read its rows"
    look = "An exception ends its own thread, no more. Who catches it there, and tells the caller?"
    try:
        came = f"no exception, but {in_words(parallel_apply(meeting.replicas, meeting.inputs))}"
    except NotYet:
        raise
    except Exception as error:
        came = f"{type(error).__name__}: {error}"
        look = "This is another exception than the replica's. What became of that in its thread?"
    threads_have_ended(meeting)
    if not (came.startswith("ValueError: ") and problem.split(": ")[1] in came):
        raise NotYet(meeting.call, came, problem, look)


def threads_have_ended(meeting: Meeting) -> None:
    """Raise NotYet if a thread is left; one that has nothing to do is given a moment."""
    running, end = meeting.running[:], time.monotonic() + GRACE
    threads = () if running else set(threading.enumerate()) - meeting.before
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    if running or any(thread.is_alive() for thread in threads):
        came = f"replica {running[0]} was still running" if running else "a thread was left"
        look = "Who waits until each thread has ended, also if a replica raises an exception?"
        raise NotYet(meeting.call, f"{came} when the call was over", "no thread is left then", look)


def all_met(meeting: Meeting) -> None:
    """Raise NotYet unless each replica with an input ran once, all at the same time."""
    called, count = sorted(meeting.called), len(meeting.inputs)
    if called != list(range(count)):
        came = f"calls of the replicas, counted from 0: {called}"
        look = "Replica i gets input i, and rests if there is none. Which one gets which in yours?"
        raise NotYet(meeting.call, came, f"one call of each of {list(range(count))}", look)
    most, used = max(meeting.at_once), len(meeting.threads)
    look = "How many threads may work at the same time, and how many replicas are to run?"
    if meeting.threads <= meeting.before:
        look = "All of them ran in the caller's own thread. What would start another one?"
    elif used == 1:
        look = "One thread ran them all. Are there others, or did you wait before the next call?"
    elif most == 1:
        look = "The threads took turns. What does each one wait for, before it starts or works?"
    if most < count:
        came = f"at most {most} of {count} replicas were running at a time"
        raise NotYet(meeting.call, came, f"all {count} at the same time", look)


def look_at(outputs: Any, required: list[Tensor]) -> str:
    """The thought behind wrong outputs, "" for right ones."""
    if not isinstance(outputs, list | tuple):
        return "Is a list returned, one tensor for each input? To join them is the work of gather."
    if any(not isinstance(one, Tensor) for one in outputs):
        return "Not all of these are a replica's output. How does an output leave its thread?"
    found = [[torch.equal(one, right) for one in outputs] for right in required]
    if len(outputs) != len(required) or not all(map(any, found)):
        return "Replica i gets input i. What happens to an input, or to an output, on its way?"
    in_order = all(found[i][i] for i in range(len(required)))
    return "" if in_order else "The right outputs, in another order. Who came first in this list?"
