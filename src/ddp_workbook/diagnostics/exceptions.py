"""An exception of a rank as plain data: the exception itself may not be picklable."""

import traceback
from collections.abc import Iterator

import torch

from ddp_workbook.diagnostics.source import places
from ddp_workbook.diagnostics.user_code import HIDDEN, is_own, short
from ddp_workbook.errors import Unsendable

LONGEST = 1500  # characters kept of a message
DEEPEST = 100  # frames kept
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


def as_data(error: BaseException) -> dict:
    """What the kernel reports about `error`; `traceback` holds the reader's own frames.

    `arguments` are the error's arguments that are strings; `frames` is its whole stack, innermost
    first; `places` are the expressions in which the reader's frames stood, and `gpus` how many
    GPUs the rank sees.
    """
    stack = traceback.walk_tb(error.__traceback__)
    frames = [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in stack]
    pages = traceback.TracebackException.from_exception(error)
    shorten(pages)
    name, text = type(error).__name__, text_of(error)
    return {
        "type": name,
        "reason": cut(f"{name}: {text}" if text else name, LONGEST),
        "traceback": cut("".join(pages.format()).rstrip(), 3 * LONGEST),
        "lost_peer": any(map(lost_peer, chain(error))),
        "waited": any(lost_peer(e) or timed_out(e) for e in chain(error)),
        "unsendable": isinstance(error, Unsendable),
        "arguments": [cut(arg, LONGEST) for arg in error.args if type(arg) is str],
        "frames": frames[: -DEEPEST - 1 : -1],
        "places": places([*chain(error)]),
        "gpus": torch.cuda.device_count(),
    }


def shorten(pages: traceback.TracebackException | None, depth: int = 20) -> None:
    """Keep only the reader's own frames, with short names; if there are none, keep all."""
    if pages is None or depth == 0:
        return
    own = [frame for frame in pages.stack if is_own(frame.filename)]
    pages.stack[:] = own or [f for f in pages.stack if not f.filename.startswith(tuple(HIDDEN))]
    for frame in pages.stack:
        frame.filename = short(frame.filename)
    for page in (pages.__cause__, pages.__context__, *(pages.exceptions or ())):
        shorten(page, depth - 1)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception, and every exception that it was raised from or during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
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
    left_out = f"\n… {len(text) - length:,} characters not shown …\n"
    return text[: length * 3 // 4] + left_out + text[-length // 4 :]
