"""The error that a rank is handling while it hangs: its clean-up waits, and nobody sees the error.

A `finally`, the end of a `with` and an `except` run before the error leaves the worker. If they
wait for other ranks, the launch hangs, and only the rank itself knows why.
"""

import ast
import contextlib
import functools
import linecache
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import FrameType, WrapperDescriptorType
from typing import Any

from ddp_workbook.diagnostics.user_code import is_own
from ddp_workbook.source_tree import parsed

PLAIN = (str, int, float, bool, bytes, type(None))  # Python's own code turns them into text
LONGEST = 1500  # characters of an error's text


class Clause(Enum):
    """Where a rank stands that has an error; the value is for people."""

    FINALLY = "in a `finally` after"
    WITH = "at the end of a `with` after"
    EXCEPT = "in an `except` after"
    UNKNOWN = "handling"


CLEAN_UP = (Clause.FINALLY, Clause.WITH)  # they run with and without an error


@dataclass(frozen=True)
class Handled:
    """An error that the worker was handling when it was asked where it stands, or when it failed.

    `file` and `line` are the reader's line that raised it. The frame that handles it is in
    `handler`; the error left it at the line `left`, and it runs the line `now`.
    """

    reason: str
    file: str
    line: int
    handler: str
    left: int
    now: int
    succeeds: bool = False  # sys.exit(0): it ends the worker, and is no error

    @functools.cached_property
    def clause(self) -> Clause:
        """The innermost statement that the error has left and whose handler runs."""
        found = Clause.UNKNOWN
        for node in ast.walk(tree_of(self.handler) or ast.Module([], [])):  # outer ones first
            match node:
                case ast.Try() | ast.TryStar():
                    if _covers([*node.body, *node.handlers, *node.orelse], self.left):
                        if _covers(node.finalbody, self.now):
                            found = Clause.FINALLY
                        elif _covers(node.handlers, self.now):
                            found = Clause.EXCEPT
                case ast.With() | ast.AsyncWith():
                    head = range(node.lineno, max(node.lineno + 1, node.body[0].lineno))
                    if _covers(node.body, self.left) and self.now in head:
                        found = Clause.WITH
        return found


def _covers(block: Sequence[ast.stmt | ast.ExceptHandler], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


def tree_of(path: str) -> ast.Module | None:
    """The syntax tree of the lines that reports show for this file; None if there is none."""
    linecache.checkcache(path)
    try:
        return parsed("".join(linecache.getlines(path)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


@dataclass(frozen=True)
class ThreadError:
    """An error that ended a thread of the worker's; `file` and `line` are the reader's."""

    reason: str
    file: str
    line: int


# In a rank


def handled_by(thread: int) -> Handled | None:
    """The error that this thread is handling, if a line of the reader's raised it.

    Another thread asks, which must not be held up: so this calls no code of the reader's.
    """
    error: Any = sys._current_exceptions().get(thread)
    if isinstance(error, tuple):  # Python 3.11
        error = error[1]
    return _described(error, lambda handler: handler.f_lineno)


def handled_before(error: BaseException) -> Handled | None:
    """The error of the reader's during whose handling `error` was raised."""
    lines = dict(traceback.walk_tb(error.__traceback__))
    return None if error.__cause__ else _described(error.__context__, lambda f: lines.get(f, 0))


def that_ended_a_thread(error: BaseException | None) -> ThreadError | None:
    """The error as plain data, if a line of the reader's raised it; sys.exit is no error there."""
    if error is None or isinstance(error, SystemExit):
        return None
    place = _own_line(error)
    return place and ThreadError(reason_of(error), place[0].f_code.co_filename, place[1])


def _own_line(error: BaseException) -> tuple[FrameType, int] | None:
    """The innermost frame of the reader's from which the error came, and the line in it."""
    stack = reversed(list(traceback.walk_tb(error.__traceback__)))
    return next(((f, line) for f, line in stack if is_own(f.f_code.co_filename)), None)


def _described(error: BaseException | None, line_in: Callable[[FrameType], int]) -> Handled | None:
    if error is None or isinstance(error, GeneratorExit):  # that closes a generator
        return None
    own = _own_line(error)
    if own is None:
        return None
    code = _attribute(SystemExit, "code", error) if isinstance(error, SystemExit) else 1
    (frame, line), (handler, left) = own, next(traceback.walk_tb(error.__traceback__))
    return Handled(
        reason_of(error),
        frame.f_code.co_filename,
        line,
        handler.f_code.co_filename,
        left,
        line_in(handler),
        succeeds=code is None or (type(code) is int and code == 0),
    )


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
        compiled = isinstance(kind.__str__, WrapperDescriptorType)
        if compiled and all(type(part) in PLAIN for part in parts):
            text = kind.__str__(error)
            return f"{kind.__name__}: {text}"[:LONGEST] if text else kind.__name__
        plain = [repr(a) if type(a) in PLAIN else f"<{type(a).__name__}>" for a in arguments]
        return f"{kind.__name__}({', '.join(plain)})"[:LONGEST]
    return kind.__name__


def _attribute(kind: type, name: str, error: BaseException) -> Any:
    """What `kind` itself stores under this name, even if the error's class has a property there."""
    return vars(kind)[name].__get__(error)
