"""The part of a check that runs in a rank: loads the attempt, calls it, and sees what it breaks."""

import contextlib
import linecache
import os
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ddp_workbook.diagnostics import exceptions, user_code
from ddp_workbook.exercises.judging import unordered
from ddp_workbook.exercises.judging.attempts import YOUR_CELL
from ddp_workbook.exercises.judging.not_yet import NotYet
from ddp_workbook.exercises.judging.process_state import LOOK_AT_STATE, State
from ddp_workbook.exercises.judging.result_validation import refuse_what_cannot_travel
from ddp_workbook.exercises.judging.signatures import refuse_another_function, signature_of
from ddp_workbook.exercises.judging.values import in_words
from ddp_workbook.launcher.process_group import set_up

WHOLE_CELL = "your cell, from top to bottom"
EXERCISES = os.path.dirname(os.path.dirname(__file__))  # the check's own lines are not the reader's


class InRank:
    """A worker: passes the function in the file at `path` to `probe`, and returns its result.

    `group` is False if the exercise has no ranks.
    """

    def __init__(self, name: str, path: Path, probe: Callable, group: bool):
        self.name, self.path, self.probe, self.group = name, str(path), probe, group
        user_code.hide(EXERCISES)  # from the reports, which this process makes

    def __call__(self) -> Any:
        """Run in a rank."""
        user_code.call_it(self.path, YOUR_CELL)
        threading.excepthook = say_briefly
        prepare(self.group)
        module = import_module(f"ddp_workbook.exercises.{self.name}")
        guard = partial(nothing_changes, may_seed=module.CHECK.may_seed)
        guarded = Guarded(self.name, self.load(getattr(module, self.name), guard), guard)
        answer = self.probe(guarded)
        refuse_what_cannot_travel(self.name, answer)
        return answer

    def load(self, asked: Callable, guard: Callable) -> Callable:
        """The reader's function; NotYet if there is none, or if it takes other arguments."""
        module = types.ModuleType(self.name)
        module.__file__ = self.path
        sys.modules[module.__name__] = module  # so that a class of the attempt can be pickled
        text = Path(self.path).read_text(encoding="utf-8")
        code = unordered.compiled(text, self.path, module.__dict__)
        module.__dict__["hash"] = hash_of_a_process
        with guard(WHOLE_CELL), no_leaving(WHOLE_CELL, "a cell that runs to its end"):
            exec(code, module.__dict__)
        function = module.__dict__.get(self.name)
        if not callable(function):
            raise NotYet(
                WHOLE_CELL,
                _defined(module, self.name),
                f"a function called {self.name}",
                f"the line {signature_of(self.name, asked)}: is it there, at the left margin?",
            )
        refuse_another_function(self.name, function, asked)
        return function


def prepare(group: bool) -> None:
    """Make the process group, if there is one, and hide the check's own lines from reports."""
    user_code.hide(EXERCISES)
    # torch 2.13 has new names for two collectives; the old ones are right as well.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
    set_up(bare=not group)


def hash_of_a_process(value: Any) -> int:
    """The hash() of the reader's cell: for strings, it differs between ranks and calls.

    Ranks here are forks of one process. Under torchrun each has its own hash seed.
    """
    return hash((value, os.environ["RANK"], Guarded.calls)) if has_text(value) else hash(value)


def has_text(value: Any) -> bool:
    """Whether Python's hash of a value depends on the process."""
    if isinstance(value, tuple | frozenset):
        return any(map(has_text, value))
    return isinstance(value, str | bytes)


def _defined(module: types.ModuleType, name: str) -> str:
    if name in vars(module):
        return f"{name} is {in_words(vars(module)[name])}, which is not a function"
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return f"it defines {', '.join(own) or 'no function'}"


def say_briefly(error: threading.ExceptHookArgs) -> None:
    """Print an exception that ended a thread of the reader's, with only the reader's own lines."""
    pages = traceback.TracebackException(error.exc_type, error.exc_value, error.exc_traceback)
    exceptions.shorten(pages)
    print(f"In a thread: {''.join(pages.format()).rstrip()}", file=sys.stderr)


class Guarded:
    """The reader's `function`; NotYet if it changes the state of the process or exits."""

    calls = 0

    def __init__(self, name: str, function: Callable, guard: Callable):
        self.name, self.function, self.guard = name, function, guard

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        Guarded.calls += 1
        with (
            self.guard(self.name),
            no_leaving(self.name, "a function that returns to its caller, or raises an error"),
        ):
            return self.function(*args, **kwargs)


@contextlib.contextmanager
def nothing_changes(called: str, *, may_seed: bool) -> Iterator[None]:
    """Raise NotYet if the state of the process has changed; `may_seed` ignores seeds."""
    before = State(may_seed)
    yield
    changed = before.changed(State(may_seed))
    if changed:
        what = changed[0]
        look = next((text for start, text in LOOK_AT_STATE.items() if what.startswith(start)), "")
        raise NotYet(
            called,
            f"it changed {what}, which belongs to the whole process",
            "the process stays as it was, because other code in it relies on that",
            look or f"Which line changes {what} without restoring it?",
        )


@contextlib.contextmanager
def no_leaving(called: str, required: str) -> Iterator[None]:
    """Turn `sys.exit` into NotYet: what a check calls must return."""
    try:
        yield
    except SystemExit as leaving:
        frames = traceback.extract_tb(leaving.__traceback__)
        lines = [frame.lineno for frame in frames if user_code.short(frame.filename) == YOUR_CELL]
        path = next((f.filename for f in frames if user_code.short(f.filename) == YOUR_CELL), "")
        text = linecache.getline(path, lines[-1]).strip() if lines else f"exit({leaving.code!r})"
        where = f"your line {lines[-1]}: " if lines else ""
        raise NotYet(
            called,
            f"{where}{text}\nwhich ends the whole process",
            required,
            "What should happen here instead of ending the process?",
        ) from None
