"""Attributes of PyTorch that are replaced for the rest of a process."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any


def called_by_torch(depth: int = 1) -> bool:
    """True if PyTorch itself is the caller, `depth` frames above the function that asks."""
    name = sys._getframe(1 + depth).f_globals.get("__name__", "")
    return name == "torch" or name.startswith("torch.")


def replace(owner: Any, name: str, around: Callable) -> Callable:
    """Make `owner.name(...)` call `around(original, ...)`; returns what stands there now."""
    original = getattr(owner, name)

    @functools.wraps(original, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapper)
    return wrapper


signature_of = functools.cache(inspect.signature)  # which takes a while


def replace_arguments(owner: Any, name: str, change: Callable[[dict[str, Any]], None]) -> Callable:
    """Make `owner.name(...)` call the original after `change` has seen its arguments by name.

    What `change` leaves is passed on; arguments that do not fit the signature go on as they are.
    """
    original = getattr(owner, name)

    @functools.wraps(original, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature_of(original).bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # which says what is wrong
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    setattr(owner, name, wrapper)
    return wrapper


def class_in_place_of(real: type, make: Callable[..., Any]) -> type:
    """A class that makes `make(...)`, of which objects of `real` are instances, and equal to it."""

    class InPlace(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

        def __eq__(cls, other: object) -> bool:
            return other is cls or other is real

        def __hash__(cls) -> int:
            return hash(real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    names = {"__module__": real.__module__, "__qualname__": real.__qualname__}
    return InPlace(real.__name__, (), names | {"__doc__": real.__doc__})
