"""Validates results before they leave a rank: plain values that the kernel can read and hold."""

import pickle
import types
from typing import Any

from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.launcher import serialization

MOST = 32_000_000  # bytes of one rank's answer; far more than any exercise asks for
PATHS = "Does every path through the function return what the docstring says?"
WORK = (
    "A collective with async_op=True returns this at once, before there is a result. Which line "
    "waits for it, and which tensor then holds the result?"
)


def refuse_what_cannot_travel(name: str, value: Any) -> None:
    """Raise NotYet for an answer of the reader's own class, too large, or bound to this process.

    The kernel could not read it, or would have to run the reader's code to read it.
    """
    try:
        Scale(name).dump(value)
    except NotYet:
        raise
    except TooLarge:
        words, look = f"something of more than {MOST / 1e6:g} MB", "How large should it be?"
    except OwnMaking as found:
        words, look = f"{found}, which only your cell knows", PATHS
    except RecursionError:
        words, look = "lists within lists, nested too deeply", PATHS
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
    """Pickles without storing anything, to find what could not be sent."""

    def __init__(self, own: str):
        self.own, self.bytes = own, 0
        super().__init__(self, protocol=5)

    def write(self, data: bytes | pickle.PickleBuffer) -> None:
        """Count what pickle writes."""
        self.bytes += memoryview(data).nbytes
        if self.bytes > MOST:
            raise TooLarge

    def reducer_override(self, obj: Any):
        """Called by pickle for each object except numbers, strings, lists and the like."""
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
