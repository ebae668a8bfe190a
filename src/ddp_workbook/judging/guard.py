"""Refuses other functions, changed state of the process, exits, and values that cannot travel."""

import contextlib
import inspect
import pickle
import random
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
import torch.distributed as dist

from ddp_workbook.judging.attempts import YOUR_CELL
from ddp_workbook.judging.check import CheckFailed
from ddp_workbook.judging.values import in_words
from manyranks.diagnostics import user_code
from manyranks.launcher import serialization

WHOLE_CELL = "your cell, from top to bottom"
LOOK_AT_STATE = {
    "the seed": "A seed set here also changes later random numbers: dropout, shuffling, other "
    "people's code. Take random numbers from a torch.Generator of your own.",
    "the state": "Was a seed set, or a number drawn? Both change later random numbers in the whole "
    "process. A random.Random or torch.Generator of your own belongs to you.",
    "the process group": "The code that made the group also ends it.",
    "torch.distributed.": "Which line replaces it? All code of the process would now call the "
    "replacement.",
}

MAX_ANSWER_BYTES = 32_000_000  # bytes of one rank's answer; far more than any exercise asks for
EVERY_PATH_RETURNS = "Does every path through the function return what the docstring says?"
WAIT_FOR_WORK = (
    "A collective with async_op=True returns this at once, before there is a result. Which line "
    "waits for it, and which tensor then holds the result?"
)


def function_in(module: types.ModuleType, solution: Callable) -> Callable:
    """The cell's function, if it can be called as the solution is. Raises CheckFailed."""
    name = solution.__name__
    needed = inspect.signature(solution)
    line = f"def {name}({', '.join(needed.parameters)})"
    stands = f"{line}, as it was in the cell at first"
    function = vars(module).get(name)
    if not callable(function):
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == name]
        actual_text = f"it defines {', '.join(own) or 'no function'}"
        if name in vars(module):
            actual_text = f"{name} is {in_words(function)}, which is not a function"
        look = f"the line {line}: is it there, at the left margin?"
        raise CheckFailed(WHOLE_CELL, actual_text, f"a function called {name}", look)
    if other_kind := _kind_of_callable(function, solution):
        raise CheckFailed(WHOLE_CELL, f"{name} is {other_kind[0]}", stands, other_kind[1])
    with contextlib.suppress(ValueError):  # a builtin without a signature: let the call tell
        has = inspect.signature(function)
        try:
            has.bind(*needed.parameters)
            has.bind(*(p.name for p in needed.parameters.values() if p.default is p.empty))
        except TypeError as error:
            actual = f"it cannot be called like this: {error}"
            raise CheckFailed(line[4:], actual, stands, "the line that begins with def") from None
    return function


def _kind_of_callable(function: Callable, solution: Callable) -> tuple[str, str] | None:
    """What it is instead of a plain function, and where to look."""
    if isinstance(function, type):
        return "a class", "the line that begins with class, or that gives the name to a class"
    if inspect.iscoroutinefunction(function):
        return (
            "an async function, and calling it runs nothing",
            "the word async before def: what would await the function?",
        )
    if inspect.isgeneratorfunction(function) and not inspect.isgeneratorfunction(solution):
        return (
            "a generator, and calling it runs nothing: it contains a yield",
            "the line with yield: what should the function do instead, once it has its result?",
        )
    return None


class State:
    """A snapshot of this process: seeds, modes of torch, the group, torch.distributed itself.

    `may_seed` leaves out the seeds.
    """

    def __init__(self, may_seed: bool = False) -> None:
        self.values = {} if may_seed else random_state()
        self.values |= {
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.get_default_dtype()": torch.get_default_dtype(),
            "torch.get_default_device()": torch.get_default_device(),
            "the process group": dist.is_initialized() and str(dist.group.WORLD),
        }
        for name, value in vars(dist).items():
            if type(value) is types.FunctionType:  # isinstance would wake a deprecated name
                self.values[f"torch.distributed.{name}"] = value

    def differences(self, other: "State") -> list[str]:
        """Names of the parts that differ."""
        return [name for name, value in self.values.items() if other.values.get(name) != value]


def random_state() -> dict[str, object]:
    """The seed of torch, which drawing does not change, and the state of other generators."""
    kind, keys, *rest = numpy.random.get_state()
    return {
        "the seed of torch": torch.initial_seed(),
        "the state of Python's random": random.getstate(),
        "the state of NumPy's random": (kind, numpy.asarray(keys).tobytes(), *rest),
    }


@contextlib.contextmanager
def state_unchanged(call_text: str, *, may_seed: bool) -> Iterator[None]:
    """Raise CheckFailed if the state of the process has changed; `may_seed` ignores seeds."""
    before = State(may_seed)
    yield
    changed = before.differences(State(may_seed))
    if changed:
        what = changed[0]
        look = next((text for start, text in LOOK_AT_STATE.items() if what.startswith(start)), "")
        raise CheckFailed(
            call_text,
            f"it changed {what}, which belongs to the whole process",
            "the process stays as it was, because other code in it relies on that",
            look or f"Which line changes {what} without restoring it?",
        )


@contextlib.contextmanager
def no_exit(call_text: str, required: str) -> Iterator[None]:
    """Turn `sys.exit` into CheckFailed: what a check calls must return."""
    try:
        yield
    except SystemExit as leaving:
        frames = traceback.extract_tb(leaving.__traceback__)
        own = [frame for frame in frames if user_code.short(frame.filename) == YOUR_CELL]
        text = own[-1].line if own else f"exit({leaving.code!r})"
        where = f"your line {own[-1].lineno}: " if own else ""
        raise CheckFailed(
            call_text,
            f"{where}{text}\nwhich ends the whole process",
            required,
            "What should happen here instead of ending the process?",
        ) from None


def refuse_unpicklable(name: str, value: Any) -> None:
    """Raise CheckFailed for an answer of the reader's class, too large, or bound to this process.

    The kernel could not read it, or would have to run the reader's code to read it.
    """
    try:
        PickleSizer(name).dump(value)
    except CheckFailed:
        raise
    except TooLarge:
        words, look = (
            f"something of more than {MAX_ANSWER_BYTES / 1e6:g} MB",
            "How large should it be?",
        )
    except CellDefinedObject as cell_object:
        words, look = f"{cell_object}, which only your cell knows", EVERY_PATH_RETURNS
    except RecursionError:
        words, look = "lists within lists, nested too deeply", EVERY_PATH_RETURNS
    except Exception as error:  # whatever pickling the reader's objects raises
        inner = _innermost(error)
        words, look = (
            f"{inner}, which cannot leave its process",
            WAIT_FOR_WORK if "Work" in inner else EVERY_PATH_RETURNS,
        )
    else:
        return
    required = "a value of the kind that the docstring names"
    raise CheckFailed(name, words, required, look) from None


class TooLarge(Exception):
    """There is more than the kernel should take."""


class CellDefinedObject(Exception):
    """An object of a class, or a function, from the attempt; the message names it."""


class PickleSizer(serialization.Packer):
    """Pickles without storing anything, to find what could not be sent."""

    def __init__(self, module_name: str):
        self.module_name, self.bytes = module_name, 0
        super().__init__(self, protocol=5)

    def write(self, data: bytes | pickle.PickleBuffer) -> None:
        """Count what pickle writes."""
        self.bytes += memoryview(data).nbytes
        if self.bytes > MAX_ANSWER_BYTES:
            raise TooLarge

    def reducer_override(self, obj: Any):
        """Called by pickle for each object except numbers, strings, lists and the like."""
        kind = obj if isinstance(obj, type) else type(obj)
        if isinstance(obj, types.FunctionType) and obj.__module__ == self.module_name:
            raise CellDefinedObject(f"the function {obj.__name__}")
        if kind.__module__ == self.module_name:
            raise CellDefinedObject(
                f"{'the' if kind is obj else 'an object of'} class {kind.__name__}"
            )
        return super().reducer_override(obj)


def _innermost(error: Exception) -> str:
    """ "a generator", from "cannot pickle 'generator' object" """
    text = str(error)
    if text.startswith("cannot pickle '"):
        return f"an object of type {text.split(chr(39))[1].rpartition('.')[2]}"
    return text[:200] or type(error).__name__
