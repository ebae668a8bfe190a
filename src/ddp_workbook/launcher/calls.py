"""What the ranks run: a function or a script, and the arguments that each rank gets."""

import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ddp_workbook.errors import LaunchRefused

# Parameters that `mp.spawn` and hand-written launchers fill in, under the names that people use.
RANK_NAMES = ("rank", "local_rank", "global_rank", "gpu", "gpu_id", "proc_id")
WORLD_SIZE_NAMES = ("world_size", "size", "nprocs", "num_processes")


class Own(Enum):
    """A placeholder among the arguments: each rank puts its own value there."""

    RANK = "RANK"
    WORLD_SIZE = "WORLD_SIZE"

    @property
    def value_here(self) -> int:
        """In a rank: the value."""
        return int(os.environ[self.value])


@dataclass
class Call:
    """A worker with its arguments; `Own` stands where a rank's own number goes."""

    worker: Callable
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)

    @property
    def file(self) -> str | None:
        """The file of the worker, where it has one."""
        worker = getattr(self.worker, "__wrapped__", self.worker)  # a recorded one
        if isinstance(worker, Script):
            return worker.path
        module = sys.modules.get(getattr(worker, "__module__", None) or "")
        return getattr(module, "__file__", None)

    def run(self) -> Any:
        """In a rank: call the worker."""
        return self.worker(
            *map(_own_value, self.args),
            **{name: _own_value(value) for name, value in self.kwargs.items()},
        )


def _own_value(value: Any) -> Any:
    return value.value_here if isinstance(value, Own) else value


@dataclass(frozen=True)
class Script:
    """A worker that is a file; it runs as `python path arguments` would."""

    path: str

    def __call__(self, *words: str) -> None:
        """In a rank: run the file as `__main__`."""
        sys.argv = [self.path, *words]
        sys.path.insert(0, os.path.dirname(self.path))
        runpy.run_path(self.path, run_name="__main__")


def call_of(worker: Callable | str | os.PathLike, args: tuple, kwargs: dict) -> Call:
    """The call that `launch` was asked for; raises LaunchRefused where it cannot be made."""
    if isinstance(worker, str | os.PathLike):
        return _call_of_script(Path(worker), args, kwargs)
    if not callable(worker):
        raise LaunchRefused(
            f"The worker must be a function, or the path of a script; got {worker!r} of type "
            f"{type(worker).__name__}."
        )
    return Call(worker, *_with_own_numbers(worker, args, kwargs))


def _call_of_script(path: Path, args: tuple, kwargs: dict) -> Call:
    if path.is_dir():
        raise LaunchRefused(f"{path} is a folder: give the path of a script in it.")
    if not path.is_file():
        raise LaunchRefused(f"There is no script {path} (seen from {Path.cwd()}).")
    if path.suffix == ".ipynb":
        raise LaunchRefused(f"{path} is a notebook: ranks run functions and Python scripts.")
    if kwargs:
        name, value = next(iter(kwargs.items()))
        raise LaunchRefused(
            f"{name}={value!r}: a script takes words of a command line, "
            f'such as "--{name.replace("_", "-")}", "{value}".'
        )
    for word in args:
        if not isinstance(word, str | int | float | os.PathLike) or isinstance(word, bool):
            raise LaunchRefused(f"{word!r}: a script's arguments must be texts or numbers.")
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError, UnicodeError) as error:
        where = f", line {error.lineno}" if getattr(error, "lineno", None) else ""
        raise LaunchRefused(
            f"{path}{where} is no valid Python: {getattr(error, 'msg', error)}."
        ) from None
    return Call(Script(str(path.absolute())), tuple(map(str, args)))


def _with_own_numbers(worker: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments, with `Own` for a rank and a world size that the call leaves open."""
    try:
        signature = inspect.signature(worker)
    except (TypeError, ValueError):  # a builtin
        return args, kwargs
    problems = []
    for filled in ((args, kwargs), *_fillings(signature, args, kwargs)):
        problem = _misfit(signature, *filled)
        if not problem:
            return filled
        problems.append(problem)
    problem = problems[min(1, len(problems) - 1)]  # with all filled in that can be, if anything can
    name = getattr(worker, "__name__", type(worker).__name__)
    raise LaunchRefused(f"{name}{signature} cannot be called with these arguments: {problem}.")


def _misfit(signature: inspect.Signature, args: tuple, kwargs: dict) -> str:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _fillings(signature: inspect.Signature, args: tuple, kwargs: dict) -> Iterator[tuple]:
    """The arguments with rank and world size, then with the rank alone, as `mp.spawn` adds it."""
    rank, world_size = (
        next(
            (
                (index, name, own)
                for index, (name, parameter) in enumerate(signature.parameters.items())
                if name in names and name not in kwargs and parameter.default is parameter.empty
            ),
            None,
        )
        for names, own in ((RANK_NAMES, Own.RANK), (WORLD_SIZE_NAMES, Own.WORLD_SIZE))
    )
    for places in ([rank, world_size], [rank], [world_size]):
        if None in places:
            continue
        positional, named = list(args), dict(kwargs)
        for index, name, own in sorted(places, key=lambda place: place[0]):
            if index <= len(positional):
                positional.insert(index, own)
            else:
                named[name] = own
        yield tuple(positional), named
