"""Unpickles the ranks' results within the launch's time: this runs code that may never end.

So it happens in a thread, which the launch leaves behind if it must.
"""

import contextvars
import ctypes
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from ddp_workbook.diagnostics import flight_recorder, report
from ddp_workbook.errors import WorkbookError
from ddp_workbook.launcher import serialization
from ddp_workbook.launcher.interrupts import surely
from ddp_workbook.launcher.rank_handle import RankHandle

GRACE = 1.0  # seconds at least, for results that came just in time
LOOK = 0.1  # seconds between two looks at `cancelled`


def results(
    handles: Sequence[RankHandle],
    deadline: float,
    timeout: float,
    cancelled: threading.Event | None = None,
) -> list:
    """What the ranks returned, in rank order.

    `deadline` is a time of time.monotonic(), `timeout` the time limit in seconds that the error
    names. Raises RanksHung at the deadline, WorkbookError for a result that cannot be unpickled,
    and KeyboardInterrupt once `cancelled` is set.
    """
    reading = Reading(handles)
    deadline = max(deadline, time.monotonic() + GRACE)
    try:
        surely(reading.start)
        while not reading.done.wait(LOOK):
            if cancelled and cancelled.is_set():
                raise KeyboardInterrupt
            if time.monotonic() >= deadline:
                reading.note_position()
                raise report.hang([handle.evidence for handle in handles], timeout)
    except KeyboardInterrupt:
        reading.note_position()
        raise
    finally:
        reading.end()
    if reading.error:
        raise reading.error
    return reading.found


class Reading(threading.Thread):
    """Unpickles one result after the other; in the end, they are in `found`, or `error` is set."""

    def __init__(self, handles: Sequence[RankHandle]):
        super().__init__(name="results of ranks", daemon=True)
        self.handles = handles
        self.found: list[Any] = []
        self.error: BaseException | None = None
        self.done = threading.Event()  # an interrupted `join` would take the thread for ended
        self.context = contextvars.copy_context()  # what is printed goes to the caller's cell

    def run(self) -> None:
        """Called by `start`."""
        try:
            for handle in self.handles:
                handle.evidence.unpickling = True
                self.found.append(self.context.run(unpickled, handle))
                handle.evidence.unpickling = False
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def note_position(self) -> None:
        """Make the evidence of the rank whose result is being unpickled say where that stands."""
        stack = flight_recorder.stack(sys._current_frames().get(self.ident or 0))
        for handle in self.handles:
            if handle.evidence.unpickling:
                handle.evidence.stack = stack

    def end(self) -> None:
        """End the thread; one that is in compiled code ends when it comes out of it."""
        if self.done.is_set():
            self.join()
        elif self.ident:
            end = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), end)


def unpickled(handle: RankHandle) -> Any:
    """The rank's result; the memory of its pickle is released."""
    end = handle.evidence.end
    parts, end.value = end.value, []
    try:
        return serialization.unpack(parts[0], parts[1:])
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {error}".rstrip(".: ")
        raise WorkbookError(
            f"The result of rank {handle.rank} cannot be read here: {text}.\n"
            "Return numbers, strings, lists, dicts, tensors, or objects of an importable class."
        ) from error
