"""The error that a rank is handling while it hangs: its clean-up waits, and nobody sees the error.

A `finally`, the end of a `with` and an `except` run before the error leaves the worker. If they
wait for other ranks, the launch hangs, and only the rank itself knows why.
"""

import contextlib
import sys
import traceback
from dataclasses import dataclass
from types import FrameType, WrapperDescriptorType
from typing import Any

from manyranks.diagnostics.user_code import is_own

PLAIN = (str, int, float, bool, bytes, type(None))  # Python's own code turns them into text
MAX_ERROR_CHARS = 1500  # characters of an error's text


@dataclass(frozen=True)
class HandledError:
    """An error that the worker was handling when it was asked where it stands, or when it failed.

    `file` and `line` are the reader's line that raised it.
    """

    reason: str
    file: str
    line: int
    succeeds: bool = False  # sys.exit(0): it ends the worker, and is no error


@dataclass(frozen=True)
class ThreadError:
    """An error that ended a thread of the worker's; `file` and `line` are the reader's."""

    reason: str
    file: str
    line: int


# In a rank


def current_error(thread: int) -> HandledError | None:
    """The error that this thread is handling, if a line of the reader's raised it.

    Another thread asks, which must not be held up: so this calls no code of the reader's.
    """
    error: Any = sys._current_exceptions().get(thread)
    if isinstance(error, tuple):  # Python 3.11
        error = error[1]
    return _handled_error(error)


def context_error(error: BaseException) -> HandledError | None:
    """The error of the reader's during whose handling `error` was raised."""
    return None if error.__cause__ else _handled_error(error.__context__)


def thread_error_of(error: BaseException | None) -> ThreadError | None:
    """The error as plain data, if a line of the reader's raised it; sys.exit is no error there."""
    if error is None or isinstance(error, SystemExit):
        return None
    place = _own_line(error)
    return place and ThreadError(reason_of(error), place[0].f_code.co_filename, place[1])


def _own_line(error: BaseException) -> tuple[FrameType, int] | None:
    """The innermost frame of the reader's from which the error came, and the line in it."""
    stack = reversed(list(traceback.walk_tb(error.__traceback__)))
    return next(((f, line) for f, line in stack if is_own(f.f_code.co_filename)), None)


def _handled_error(error: BaseException | None) -> HandledError | None:
    if error is None or isinstance(error, GeneratorExit):  # that closes a generator
        return None
    own = _own_line(error)
    if own is None:
        return None
    code = _attribute(SystemExit, "code", error) if isinstance(error, SystemExit) else 1
    succeeds = code is None or (type(code) is int and code == 0)
    return HandledError(reason_of(error), own[0].f_code.co_filename, own[1], succeeds)


def reason_of(error: BaseException) -> str:
    """The error's type and text; if code of the reader's would make the text, its arguments."""
    kind = type(error)
    arguments = _attribute(BaseException, "args", error)
    names = ("filename", "filename2") if isinstance(error, OSError) else ()
    parts = [*arguments, *(_attribute(OSError, name, error) for name in names)]
    if isinstance(error, BaseExceptionGroup):
        parts = parts[:1]  # its text has the number of the errors, not the errors
    with contextlib.suppress(ValueError):  # an int of more digits than Python writes
        # A __str__ that is written in C runs nothing of the reader's.
        is_in_c = isinstance(kind.__str__, WrapperDescriptorType)
        if is_in_c and all(type(part) in PLAIN for part in parts):
            text = kind.__str__(error)
            return f"{kind.__name__}: {text}"[:MAX_ERROR_CHARS] if text else kind.__name__
        plain = [repr(a) if type(a) in PLAIN else f"<{type(a).__name__}>" for a in arguments]
        return f"{kind.__name__}({', '.join(plain)})"[:MAX_ERROR_CHARS]
    return kind.__name__


def _attribute(kind: type, name: str, error: BaseException) -> Any:
    """What `kind` itself stores under this name, even if the error's class has a property there."""
    return vars(kind)[name].__get__(error)
