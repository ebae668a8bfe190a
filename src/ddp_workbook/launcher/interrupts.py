"""A step that interrupts do not break off: ranks must be ended and reaped, and all of them."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


def surely(step: Callable, *args: Any) -> None:
    """Run `step` to its end; then raise the interrupts that came, unless an error is on its way.

    Python runs the handler of a signal between two steps of the main thread, so one that comes just
    before the handler here is set can still break in: then `step` runs again, from its beginning.
    """
    already_raising = sys.exc_info()[0] is not None
    came: list = []
    done = False
    while not done:
        try:
            with _noted(came):
                step(*args)
                done = True
        except KeyboardInterrupt as error:
            came.append(error)
    if came and not already_raising:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _noted(came: list) -> Iterator[None]:
    """Interrupts of this block go into `came` instead of raising."""
    handler = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not callable(handler):  # nothing will raise, or what would is not Python's
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
