"""Checks, before the call, that the reader's function can be called as the task says."""

import inspect
from collections.abc import Callable

from ddp_workbook.exercises.judging.not_yet import NotYet


def signature_of(name: str, function: Callable) -> str:
    """`def name(...)` without annotations."""
    return f"def {name}({', '.join(inspect.signature(function).parameters)})"


def refuse_another_function(name: str, function: Callable, asked: Callable) -> None:
    """Raise NotYet for a class, for another kind of function, and for other arguments."""
    stands = f"{signature_of(name, asked)}, as it was in the cell at first"
    if another := _another_kind(function, asked):
        raise NotYet("your cell, from top to bottom", f"{name} is {another[0]}", stands, another[1])
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
            f"it cannot be called like this: {error}",
            stands,
            "the line that begins with def",
        ) from None


def _another_kind(function: Callable, asked: Callable) -> tuple[str, str] | None:
    """What it is instead of a plain function, and where to look."""
    if isinstance(function, type):
        return "a class", "the line that begins with class, or that gives the name to a class"
    if inspect.iscoroutinefunction(function):
        return (
            "an async function, and calling it runs nothing",
            "the word async before def: what would await the function?",
        )
    if inspect.isgeneratorfunction(function) and not inspect.isgeneratorfunction(asked):
        return (
            "a generator, and calling it runs nothing: it contains a yield",
            "the line with yield: what should the function do instead, once it has its result?",
        )
    return None
