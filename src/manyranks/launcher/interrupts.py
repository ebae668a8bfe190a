"""Clean-up that an interrupt cannot cut short: every rank must be ended and reaped."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


def run_uninterrupted(step: Callable, *args: Any) -> None:
    """Run `step` to its end; then re-raise any interrupt, unless an error is on its way.

    An interrupt that arrives just before the handler here is installed still raises; `step` then
    runs again from its beginning, so it must be safe to run twice.
    """
    already_raising = sys.exc_info()[0] is not None
    interrupts: list[object] = []
    complete = False
    while not complete:
        try:
            with _collect_interrupts(interrupts):
                step(*args)
                complete = True
        except KeyboardInterrupt as error:
            interrupts.append(error)
    if interrupts and not already_raising:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _collect_interrupts(interrupts: list[object]) -> Iterator[None]:
    """Collect the interrupts of this block in the list instead of raising them."""
    handler = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not callable(handler):  # no handler of Python's would raise here
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
