"""Functions of PyTorch and Python that are replaced while a script is observed."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes


class Patches(contextlib.ExitStack):
    """Replaces attributes, and puts them back at the end."""

    def replace(self, owner: Any, name: str, around: Callable) -> None:
        """Make `owner.name(...)` call `around(original, ...)`."""
        original = getattr(owner, name)

        @functools.wraps(original, updated=())
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        self.put(owner, name, wrapper)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the end."""
        missing = object()
        before = vars(owner).get(name, missing)
        setattr(owner, name, value)
        if before is missing:
            self.callback(delattr, owner, name)
        else:
            self.callback(setattr, owner, name, before)


def hide_from_observers(function: Callable) -> Callable:
    """Hide what an observer computes itself from the observers."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return wrapper


class ActiveCalls:
    """What PyTorch is doing for the reader: the innermost of the calls that have begun."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.calls.append(name)
        try:
            yield
        finally:
            self.calls.pop()

    def __bool__(self) -> bool:
        return bool(self.calls)
