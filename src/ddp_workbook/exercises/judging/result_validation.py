"""What may leave a rank: plain values that the kernel can read, and no more than it can hold."""

import types
from typing import Any

from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.launcher import serialization

MOST = 32_000_000  # bytes of one rank's answer; the largest that an exercise asks for is far below
PATHS = "Do you return what the docstring says, on every path through the function?"
WORK = (
    "A collective with async_op=True returns this at once, before there is a result. Who waits for "
    "it, and which tensor holds the result then?"
)


def refuse_what_cannot_travel(name: str, value: Any) -> None:
    """Raise NotYet for an answer that is of the reader's own making, too large, or tied to here.

    The kernel could not read it, or would run the reader's code in reading it.
    """
    try:
        Scale(name).dump(value)
    except NotYet:
        raise
    except TooLarge:
        words, look = f"something of more than {MOST / 1e6:g} MB", "How large is it meant to be?"
    except OwnMaking as found:
        words, look = f"{found}, which only your cell knows", PATHS
    except RecursionError:
        words, look = "lists within lists, too deep for any use", PATHS
    except Exception as error:  # whatever pickling the reader's objects raises
        inner = _innermost(error)
        words, look = f"{inner}, which cannot leave its process", WORK if "Work" in inner else PATHS
    else:
        return
    required = "a value of the kind that the docstring names"
    raise NotYet(name, words, required, look) from None


class TooLarge(Exception):
    """There is more than the kernel should take."""


class OwnMaking(Exception):
    """An object of a class, or a function, from the attempt; the message names it."""


class Scale(serialization.Packer):
    """Pickles into nothing, and says what would not arrive."""

    def __init__(self, own: str):
        self.own, self.bytes = own, 0
        super().__init__(self, protocol=5)

    def write(self, data: bytes) -> None:
        """Count what pickle writes."""
        self.bytes += len(data)
        if self.bytes > MOST:
            raise TooLarge

    def reducer_override(self, obj: Any):
        """Called by pickle for each object but numbers, texts, lists and the like."""
        kind = obj if isinstance(obj, type) else type(obj)
        if isinstance(obj, types.FunctionType) and obj.__module__ == self.own:
            raise OwnMaking(f"the function {obj.__name__}")
        if kind.__module__ == self.own:
            raise OwnMaking(f"{'the' if kind is obj else 'an object of'} class {kind.__name__}")
        return super().reducer_override(obj)


def _innermost(error: Exception) -> str:
    """ "a generator", from "cannot pickle 'generator' object" """
    text = str(error)
    if text.startswith("cannot pickle '"):
        return f"an object of type {text.split(chr(39))[1].rpartition('.')[2]}"
    return text[:200] or type(error).__name__
