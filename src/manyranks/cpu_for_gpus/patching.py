"""Attributes of PyTorch that are replaced for the rest of a process."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def replace(owner: Any, name: str, around: Callable) -> Callable:
    """Make `owner.name(...)` call `around(original, ...)`; returns what stands there now."""
    original = getattr(owner, name)

    @functools.wraps(original, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapper)
    return wrapper


def replace_arguments(owner: Any, name: str, change: Callable[[dict[str, Any]], None]) -> Callable:
    """Make `owner.name(...)` call the original after `change` has seen its arguments by name.

    What `change` leaves is passed on; arguments that do not fit the signature go on as they are.
    """
    original = getattr(owner, name)
    signature = inspect.signature(original)

    @functools.wraps(original, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # which says what is wrong
        change(bound.arguments)
        return original(*bound.args, **bound.kwargs)

    setattr(owner, name, wrapper)
    return wrapper


def class_in_place_of(real: type, make: Callable[..., Any]) -> type:
    """A class that makes `make(...)`, of which objects of `real` are instances, too."""

    class InPlace(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    names = {"__module__": real.__module__, "__qualname__": real.__qualname__}
    return InPlace(real.__name__, (), names | {"__doc__": real.__doc__})
