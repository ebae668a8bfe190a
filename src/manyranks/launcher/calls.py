"""What the ranks run: a function or a script, and the arguments that each rank gets."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from manyranks.errors import LaunchRefused
from manyranks.launcher.scripts import Script, ranks_hint, resolve_script


class RankPlaceholder(Enum):
    """A placeholder among the arguments: each rank puts its own value there."""

    RANK = "RANK"
    LOCAL_RANK = "LOCAL_RANK"
    WORLD_SIZE = "WORLD_SIZE"

    @property
    def value_here(self) -> int:
        """In a rank: the value."""
        return int(os.environ[self.value])


# Parameters that `mp.spawn` and hand-written launchers fill in, under the usual names.
RANK_NAMES = {
    **dict.fromkeys(("rank", "global_rank", "proc_id", "process_id"), RankPlaceholder.RANK),
    **dict.fromkeys(("local_rank", "gpu", "gpu_id", "device_id"), RankPlaceholder.LOCAL_RANK),
}
WORLD_SIZE_NAMES = {
    **dict.fromkeys(
        ("world_size", "worldsize", "size", "local_world_size"), RankPlaceholder.WORLD_SIZE
    ),
    **dict.fromkeys(("nprocs", "nranks", "num_ranks", "num_processes"), RankPlaceholder.WORLD_SIZE),
    **dict.fromkeys(("n_gpus", "ngpus", "num_gpus", "ngpus_per_node"), RankPlaceholder.WORLD_SIZE),
}
NAMES = RANK_NAMES | WORLD_SIZE_NAMES


@dataclass
class Call:
    """A worker with its arguments; `RankPlaceholder` stands where a rank's own number goes."""

    worker: Callable
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)

    @property
    def script(self) -> Script | None:
        """The script that is the worker, recorded or not; None for a function."""
        worker = getattr(self.worker, "__wrapped__", self.worker)
        return worker if isinstance(worker, Script) else None

    @property
    def file(self) -> str | None:
        """The file of the worker, if it has one."""
        worker: Any = getattr(self.worker, "__wrapped__", self.worker)
        if isinstance(getattr(worker, "text", None), str):  # a script, or a cell
            return worker.path
        module = sys.modules.get(getattr(self.worker, "__module__", None) or "")
        return getattr(module, "__file__", None)

    @property
    def has_arguments(self) -> bool:
        """True if the worker gets arguments other than its own numbers."""
        values = (*self.args, *self.kwargs.values())
        return any(not isinstance(value, RankPlaceholder) for value in values)

    def run(self) -> Any:
        """In a rank: call the worker."""
        return self.worker(
            *map(_own_value, self.args),
            **{name: _own_value(value) for name, value in self.kwargs.items()},
        )


def _own_value(value: Any) -> Any:
    return value.value_here if isinstance(value, RankPlaceholder) else value


# Functions


def call_of(worker: Callable | str | os.PathLike, args: tuple, kwargs: dict, ranks: int) -> Call:
    """The call that `launch` was asked for; raises LaunchRefused if it cannot be made."""
    if isinstance(worker, str | os.PathLike):
        return Call(*resolve_script(worker, args, kwargs, ranks))
    if not callable(worker):
        raise LaunchRefused(
            f"The worker must be a function, or the path of a script; got {worker!r} of type "
            f"{type(worker).__name__}."
        )
    for has_kind, what in (
        (inspect.iscoroutinefunction, "an async function: wrap it in one that calls asyncio.run"),
        (inspect.isgeneratorfunction, "a generator, because it contains a yield: return a list"),
    ):
        if has_kind(worker):
            raise LaunchRefused(f"{worker.__name__} is {what}. Calling it alone runs nothing.")
    return Call(worker, *_add_own_numbers(worker, args, kwargs, ranks))


def takes_rank_first(function: Callable) -> bool:
    """True for a function made for `mp.spawn`: its first parameter is a rank."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names) and names[0] in RANK_NAMES


def _add_own_numbers(worker: Callable, args: tuple, kwargs: dict, ranks: int) -> tuple:
    """The arguments; `RankPlaceholder` stands for a rank and a world size that the call omits."""
    try:
        signature = inspect.signature(worker)
    except (TypeError, ValueError):  # a builtin
        return args, kwargs
    problems = []
    for candidate in _possible_arguments(signature, args, kwargs, ranks):
        try:
            bound = signature.bind(*candidate[0], **candidate[1])
        except TypeError as error:
            problems.append(str(error))
            continue
        _refuse_contradiction(bound.arguments, signature, ranks)
        return candidate
    name = getattr(worker, "__name__", type(worker).__name__)
    fillable = ", ".join(parameter for parameter in signature.parameters if parameter in NAMES)
    hint = f" launch fills in {fillable} if the call does not." if fillable else ""
    hint += "".join(ranks_hint(key, kwargs[key]) for key in kwargs.keys() - signature.parameters)
    raise LaunchRefused(
        f"{name}{signature} cannot be called with these arguments: {problems[0]}.{hint}"
    )


def _possible_arguments(
    signature: inspect.Signature, args: tuple, kwargs: dict, ranks: int
) -> Iterator[tuple[tuple, dict]]:
    """Ways to read the call, the likeliest first, as positional and keyword arguments."""
    parameters = signature.parameters
    names = [name for name in parameters if name in NAMES and name not in kwargs]
    both = set(parameters) & set(RANK_NAMES) and set(parameters) & set(WORLD_SIZE_NAMES)
    # A parameter `rank` with a default may be something else: a low-rank layer has one, too.
    names = [n for n in names if both or parameters[n].default is inspect.Parameter.empty]
    first = next(iter(parameters), "")
    if not set(parameters) & set(RANK_NAMES):  # `size` alone may be the size of something else
        yield args, kwargs
    as_mp_spawn = ((NAMES.get(first), *args), kwargs)  # launch(f, 2) for mp.spawn(f, args=(2,))
    if first in RANK_NAMES and both and args and type(args[0]) is int and args[0] == ranks:
        yield as_mp_spawn
    if names:
        yield _fill_in(parameters, args, kwargs, names)
        if first in names and args:
            yield as_mp_spawn
    yield args, kwargs


def _fill_in(parameters: Any, args: tuple, kwargs: dict, names: list[str]) -> tuple[tuple, dict]:
    """`RankPlaceholder` at the places of `names`; the call's own arguments fill the others."""
    rest, positional, by_name, places = list(args), [], dict(kwargs), True
    for name, parameter in parameters.items():
        places &= parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        if name in names and places:
            positional.append(NAMES[name])
        elif name in names:
            by_name[name] = NAMES[name]
        elif places and rest:
            positional.append(rest.pop(0))
        else:
            places = False  # parameters after an open place must be passed by name
    return (*positional, *rest), by_name


def _refuse_contradiction(
    arguments: dict[str, Any], signature: inspect.Signature, ranks: int
) -> None:
    """Raise LaunchRefused for a fixed rank, or for a world size that contradicts `ranks`."""
    if not (set(signature.parameters) & set(RANK_NAMES)):
        return
    for name, value in arguments.items():
        if not isinstance(value, int) or isinstance(value, bool | RankPlaceholder):
            continue
        if name in ("world_size", "worldsize") and value != ranks:
            raise LaunchRefused(
                f"{name}={value} contradicts ranks={ranks}. Leave it out: launch fills it in."
            )
        if name in ("rank", "global_rank") and ranks > 1 and "world_size" in signature.parameters:
            raise LaunchRefused(
                f"{name}={value} would be the same on all {ranks} ranks. Leave it out: launch "
                "gives each its own."
            )
