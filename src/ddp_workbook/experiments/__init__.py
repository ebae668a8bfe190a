"""A folder a chapter, a module a subject: what its pages run on ranks, the table, the picture.

A page has all of a chapter's subjects under one name:

    from ddp_workbook.experiments import samplers as demos

    demos.index_sharding.play_index_sharding()
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from ddp_workbook.former_names import SUBJECTS


def subjects(package: str) -> Callable[[str], ModuleType]:
    """A package's `__getattr__` that imports its module of this name: a rank needs one, not all."""

    def subject(name: str) -> ModuleType:
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            now = f": it is called {SUBJECTS[name]} now" if name in SUBJECTS else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{now}") from None

    return subject
