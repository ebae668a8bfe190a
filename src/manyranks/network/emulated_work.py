"""What gloo's calls return in place of gloo's own Work: done no sooner than the network allows."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.distributed.distributed_c10d import Work

MAX_OVERSLEEP_S = 100e-6  # seconds by which a sleep may end too late; the rest is waited for awake


class Port:
    """This rank's only port: when it is free again in each direction, in seconds of the clock."""

    def __init__(self) -> None:
        self.free = {"out": 0.0, "in": 0.0}
        self.lock = threading.Lock()

    def reserve(self, earliest: float, seconds: float, *directions: str) -> float:
        """Take these directions for so long, as early as they are free; return the start."""
        with self.lock:
            start = max(earliest, *(self.free[direction] for direction in directions))
            self.free |= dict.fromkeys(directions, start + seconds)
        return start


class EmulatedWork(Work):
    """gloo's `work` on these tensors, which ends at `end` or with `error`, known once settled.

    `entry_time` is when this rank called it, `size` is in bytes, as `Network.seconds` takes it.
    """

    def __init__(self, kind: str, size: int, entry_time: float, work: Work, tensors: list):
        super().__init__()
        self.kind, self.size, self.entry_time = kind, size, entry_time
        self.work, self.tensors = work, tensors
        self.end = 0.0
        self.error: Exception | None = None
        self.settled = False
        self.future: torch.futures.Future | None = None
        PENDING_WORK.add(self)

    @abstractmethod
    def settle(self) -> None:
        """Wait for gloo, then `finish`, unless that has been done."""

    def finish(self, end: Callable[[], float]) -> None:
        """Wait for gloo, then set `end`, or `error`."""
        try:
            self.work.wait()
            self.end = end()
        except Exception as error:
            self.error = error
        else:
            for calls in COMPLETED_CALL_LISTS:
                calls.append(CompletedCall(self.kind, self.entry_time, self.end, self.size))
        self.settled = True

    def wait(self, timeout: Any = None) -> bool:
        """Wait for gloo and for the network; raise what gloo raises."""
        if timeout:
            self.work.wait(timeout)
        self.settle()
        if not self.future:
            PENDING_WORK.discard(self)
        if self.error:
            raise self.error
        wait_until(self.end)
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        if not self.settled and self.work.is_completed():
            self.settle()
        return self.settled and time.perf_counter() >= self.end

    def is_success(self) -> bool:
        """Whether it completed without an error."""
        return self.is_completed() and not self.error

    def exception(self) -> Any:
        """gloo's error, if there was one."""
        return self.work.exception()

    def get_future(self) -> torch.futures.Future:
        """A future of the call's tensors, for DDP and its communication hooks."""
        if self.future is None:
            self.future = torch.futures.Future()
            # A thread each: a callback, such as PowerSGD's, may itself wait for another call.
            threading.Thread(target=self._deliver, args=[self.future], daemon=True).start()
        return self.future

    def _deliver(self, future: torch.futures.Future) -> None:
        try:
            self.wait()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(self.tensors)
        PENDING_WORK.discard(self)

    def result(self) -> list:
        """The call's tensors."""
        return self.tensors

    def source_rank(self) -> int:
        """Who sent it, as gloo says."""
        return self.work._source_rank()

    _source_rank = source_rank


# The C++ half of a Work does not keep the Python half alive, without which `wait` waits for ever.
PENDING_WORK: set[EmulatedWork] = set()


class CompletedCall(NamedTuple):
    """A call that is settled: when this rank entered it, its end, and its size in bytes.

    Times are those of `time.perf_counter`.
    """

    kind: str
    entry_time: float
    end: float
    size: int


COMPLETED_CALL_LISTS: list[list[CompletedCall]] = []


def record_completed_calls() -> list[CompletedCall]:
    """A list that grows by each call that is settled from now on."""
    COMPLETED_CALL_LISTS.append([])
    return COMPLETED_CALL_LISTS[-1]


def wait_until(end: float) -> None:
    """Sleep until this time of `time.perf_counter`; awake for the last moment, to be exact."""
    while (remaining_s := end - time.perf_counter()) > 0:
        time.sleep(remaining_s - MAX_OVERSLEEP_S if remaining_s > MAX_OVERSLEEP_S else 0)
