"""The part of a check that runs in a rank: loads the attempt, calls it, and sees what it breaks."""

import contextlib
import inspect
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist

from ddp_workbook.exercises.checking.attempts import YOUR_CELL
from ddp_workbook.exercises.checking.not_yet import NotYet
from ddp_workbook.workbench import sources
from ddp_workbook.workbench.cell import start

sources.hide(os.path.dirname(os.path.dirname(__file__)))  # a check is no line of the reader's


class InRank:
    """A worker: calls the attempt in the file at `path` with this rank's own item of `each`.

    `probe`, a function of the exercise's module, is called with the attempt and that item instead,
    and does with them what the check wants to know. `group` is False where the exercise knows of no
    ranks.
    """

    def __init__(self, name: str, path: Path, probe: Callable | None, each: list, group: bool):
        self.name, self.path, self.probe = name, str(path), probe
        self.each, self.group = each, group

    def __call__(self) -> Any:
        """Run in a rank; returns what the attempt, or the probe, returned."""
        sources.call_it(self.path, YOUR_CELL)
        rank = int(os.environ["RANK"])
        start(bare=not self.group)
        module = import_module(f"ddp_workbook.exercises.{self.name}")
        asked = getattr(module, self.name)
        before = None if getattr(module, "MAY_SEED", False) else State()
        guarded = Guarded(self.name, self.load(asked), before)
        guarded.compare()  # lines outside of the function have run
        value = self.each[rank]
        return self.probe(guarded, value) if self.probe else guarded(value)

    def load(self, asked: Callable) -> Callable:
        """The reader's function; NotYet if there is none, or if it takes other arguments."""
        module = types.ModuleType(Path(self.path).stem)
        module.__file__ = self.path
        sys.modules[module.__name__] = module  # so that a class of the attempt can travel
        code = compile(Path(self.path).read_text(encoding="utf-8"), self.path, "exec")
        with no_leaving(f"your cell, to find {self.name} in it"):
            exec(code, module.__dict__)
        function = module.__dict__.get(self.name)
        if not callable(function):
            raise NotYet(
                "your cell, from top to bottom",
                f"it defines {_defined(module)}",
                f"a function called {self.name}",
                f"the line that begins with def: it must read {signature_of(self.name, asked)}",
            )
        refuse_other_arguments(self.name, function, asked)
        return function


def _defined(module: types.ModuleType) -> str:
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return ", ".join(own) or "no function"


def signature_of(name: str, function: Callable) -> str:
    """`def name(...)` without annotations."""
    return f"def {name}({', '.join(inspect.signature(function).parameters)})"


def refuse_other_arguments(name: str, function: Callable, asked: Callable) -> None:
    """Raise NotYet if the reader's function cannot be called as the task says."""
    try:
        has, needed = inspect.signature(function), inspect.signature(asked)
    except (TypeError, ValueError):  # a builtin: let the call tell
        return
    required = [p for p in needed.parameters.values() if p.default is p.empty]
    try:
        has.bind(*needed.parameters)
        has.bind(*(p.name for p in required))
    except TypeError as error:
        raise NotYet(
            f"{name}({', '.join(needed.parameters)})",
            f"it cannot be called so: {error}",
            f"{signature_of(name, asked)}, as it stood in the cell at first",
            "the line that begins with def",
        ) from None


class State:
    """What a process has only one of, and what an exercise's function must leave as it found it."""

    def __init__(self) -> None:
        self.values = {
            "the seed of torch": torch.initial_seed(),
            "the state of Python's random": random.getstate(),
            "the state of NumPy's random": repr(numpy.random.get_state()),
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.get_default_dtype()": torch.get_default_dtype(),
            "the process group": dist.is_initialized() and str(dist.group.WORLD),
        }

    def changed(self, other: "State") -> list[str]:
        """Names of what differs."""
        return [name for name, value in self.values.items() if other.values[name] != value]


LOOK_AT_STATE = {
    "the seed": "A seed set here also decides what comes after: dropout, shuffling, other people's "
    "numbers. Do you need random numbers at all? If so, take them from a torch.Generator.",
    "the state": "Random numbers drawn here are missing elsewhere. Do you need any at all?",
    "the process group": "Whoever made the group also ends it.",
}


class Guarded:
    """The reader's function; NotYet if it changes the process's state or wants to leave it."""

    def __init__(self, name: str, function: Callable, before: State | None):
        self.name, self.function, self.before = name, function, before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        with no_leaving(self.name):
            result = self.function(*args, **kwargs)
        self.compare()
        return result

    def compare(self) -> None:
        """Raise NotYet if something of the process is not as it was before the attempt."""
        changed = self.before.changed(State()) if self.before else []
        if not changed:
            return
        what = changed[0]
        look = next((text for start, text in LOOK_AT_STATE.items() if what.startswith(start)), "")
        raise NotYet(
            self.name,
            f"it changed {what}, which belongs to the whole process",
            "nothing of the process is changed, for whoever calls this function relies on it",
            look or f"Which line sets {what} and does not set it back?",
        )


@contextlib.contextmanager
def no_leaving(called: str) -> Iterator[None]:
    """Inside, `sys.exit` is NotYet: what a check calls must come back."""
    try:
        yield
    except SystemExit as leaving:
        raise NotYet(
            called,
            f"sys.exit({leaving.code!r}), which ends the whole process",
            "it returns to its caller, who has more to do",
            "the line with exit or quit",
        ) from None
