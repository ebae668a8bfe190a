"""An exception of a rank as plain data: the exception itself may not be picklable."""

import builtins
import contextlib
import difflib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Any

from manyranks.diagnostics.evidence import Frame
from manyranks.diagnostics.handled_errors import context_error
from manyranks.diagnostics.user_code import is_machinery, is_own, package, short
from manyranks.errors import Unsendable

MAX_MESSAGE_CHARS = 1500  # characters kept of a message
MAX_FRAMES = 100  # frames kept
LIBRARY_FRAMES = 3  # frames of libraries shown of an error that has none of the reader's
MAX_PACKAGES = 3  # named in the line for frames of libraries
LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "recvValue failed",
    "sendBytes failed",
    "failed to recv, got 0 bytes",
    "Socket closed",
)

# Gloo's, of every connection that a peer has closed: which one, and why, the report itself says.
SMALL_TALK = re.compile(r" *This is typically caused by a remote worker crashing\..*?(?=\n|$)")


def as_data(error: BaseException) -> dict:
    """What the kernel reports about `error`; `traceback` holds the reader's own frames.

    `arguments` are the error's arguments that are strings; `frames` is its whole stack, innermost
    first; `handled_error` is the error after which it waited for another rank in vain.
    """
    error = error_before_exit(error)
    pages = TracebackException.from_exception(error)
    if isinstance(error, SystemExit):  # what a parser of arguments caught before is not news
        pages.__suppress_context__ = True
    shorten(pages)
    pages.__notes__ = [*(pages.__notes__ or ()), *_did_you_mean(error)]
    name, text = type(error).__name__, SMALL_TALK.sub("", text_of(error))
    stack = SMALL_TALK.sub("", "".join(pages.format())).rstrip()
    waited = lost_peer(error) or timed_out(error)
    return {
        "type": name,
        "reason": cut(f"{name}: {text}" if text else name, MAX_MESSAGE_CHARS),
        "traceback": cut(stack, 3 * MAX_MESSAGE_CHARS),
        "lost_peer": any(map(lost_peer, chain(error))),
        "waited": any(lost_peer(e) or timed_out(e) for e in chain(error)),
        "unsendable": isinstance(error, Unsendable),
        "arguments": [cut(arg, MAX_MESSAGE_CHARS) for arg in error.args if type(arg) is str],
        "frames": frames(error),
        "handled_error": context_error(error) if waited else None,
    }


def _did_you_mean(error: BaseException) -> list[str]:
    """What Python itself adds to a misspelt name; its module `traceback` does from 3.12 on."""
    missing = getattr(error, "name", None)
    if sys.version_info >= (3, 12) or not isinstance(missing, str):
        return []
    candidates: list[str] = []
    with contextlib.suppress(Exception):  # dir() may run code of the reader's
        if isinstance(error, NameError):
            frame = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
            candidates = [*frame.f_locals, *frame.f_globals, *dir(builtins)]
        elif isinstance(error, AttributeError):
            candidates = dir(error.obj)
    near = difflib.get_close_matches(missing, candidates, 1, 0.7)
    return [f"Did you mean: '{near[0]}'?"] if near else []


def error_before_exit(error: BaseException) -> BaseException:
    """The error of the reader's own lines because of which the worker left by sys.exit, if any."""
    before = error.__context__
    if not isinstance(error, SystemExit) or before is None or error.__suppress_context__:
        return error
    return before if any(is_own(file) for file, _, _ in frames(before)) else error


def frames(error: BaseException) -> list[Frame]:
    """The whole stack of the error, innermost first."""
    stack = traceback.walk_tb(error.__traceback__)
    all_frames = [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in stack]
    return all_frames[: -MAX_FRAMES - 1 : -1]


class ShortStack(StackSummary):
    """Frames to show, and a line for those of libraries that lie above or below them."""

    def __init__(self, frames: Sequence[FrameSummary], above: str = "", below: str = ""):
        super().__init__(frames)
        self.above, self.below = above, below

    def __bool__(self) -> bool:
        """True if there is anything to show; Python leaves out the head of an empty one."""
        return bool(len(self) or self.above or self.below)

    def format(self, **how: Any) -> list[str]:
        """The lines of Python's own layout."""
        lines = [self.above, *super().format(**how), self.below]
        return [line for line in lines if line]


def shorten(page: TracebackException) -> None:
    """Keep the reader's own frames, with short names; those of libraries become one line.

    If the error has no frame of the reader's, its innermost ones stay.
    """
    if not any(is_own(frame.filename) for frame in page.stack):
        visible = [frame for frame in page.stack if _of_a_library(frame)]
        above = _in_one_line(visible[:-LIBRARY_FRAMES])
        page.stack = ShortStack(visible[-LIBRARY_FRAMES:], above=above)
        for frame in page.stack:
            frame.filename = short(frame.filename)
    _shorten(page)


def _shorten(page: TracebackException | None, depth: int = 20) -> None:
    """Shorten the stacks of an error, and of all that it was raised from or consists of."""
    if page is None or depth == 0:
        return
    if not isinstance(page.stack, ShortStack):
        own = [n for n, frame in enumerate(page.stack) if is_own(frame.filename)]
        behind = page.stack[own[-1] + 1 :] if own else page.stack
        below = _in_one_line(list(filter(_of_a_library, behind)), raised=True)
        page.stack = ShortStack([page.stack[n] for n in own], below=below)
        for frame in page.stack:
            frame.filename = short(frame.filename)
    for other in (page.__cause__, page.__context__, *(page.exceptions or ())):
        _shorten(other, depth - 1)


def _of_a_library(frame: FrameSummary) -> bool:
    return not is_machinery(frame.filename) and not frame.filename.startswith("<")


def _in_one_line(frames: Sequence[FrameSummary], raised: bool = False) -> str:
    """ "… 14 frames in urllib3 and http, raised in connectionpool.py:703 (urlopen)" """
    if not frames:
        return ""
    names = list(dict.fromkeys(package(frame.filename) for frame in frames))
    if len(names) > MAX_PACKAGES:
        names[MAX_PACKAGES - 1 :] = [f"{len(names) - MAX_PACKAGES + 1} others"]
    inside = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    line = f"  … {len(frames)} frame{'s' * (len(frames) > 1)} in {inside}"
    if raised:
        last = frames[-1]
        line += f", raised in {os.path.basename(last.filename)}:{last.lineno} ({last.name})"
    return f"{line}\n"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and every exception that it was raised from or during."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__context__ if error.__cause__ is None else error.__cause__


def lost_peer(error: BaseException) -> bool:
    """True if the error says only that another rank has gone."""
    text = text_of(error)
    return isinstance(error, (RuntimeError, OSError)) and any(words in text for words in LOST_PEER)


def timed_out(error: BaseException) -> bool:
    """True if the error says that another rank did not come in time."""
    return isinstance(error, RuntimeError) and "timed out" in text_of(error).lower()


def text_of(error: BaseException) -> str:
    """`str(error)`, or a note if that fails."""
    try:
        return str(error)
    except Exception as problem:
        return f"<its text cannot be shown: __str__ raised {type(problem).__name__}>"


def cut(text: str, length: int) -> str:
    """`text` without its middle if it is too long for a page."""
    if len(text) <= length:
        return text
    gap = f"\n… {len(text) - length:,} characters not shown …\n"
    return text[: length * 3 // 4] + gap + text[-length // 4 :]
