"""Names of a package that are imported from their modules when they are first used (PEP 562).

A package lists them where editors and type checkers read them, and nowhere else:

    if TYPE_CHECKING:
        from manyranks.launcher.launch import launch

    __getattr__, __dir__, __all__ = lazy_names(__name__)

lazy_loader reads a stub file in the same way, for modules of the package itself alone.
"""

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(
    package: str,
    before: Callable[[str], None] | None = None,
    former: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The package's `__getattr__`, `__dir__` and `__all__`.

    `before` is called with a name before its module is imported. `former` has names that a package
    no longer lists, each with the one that is meant.
    """
    module = sys.modules[package]
    homes = homes_in(Path(str(module.__file__)).read_text(encoding="utf-8"))

    def find(name: str) -> Any:
        name = (former or {}).get(name, name)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if before is not None:
            before(name)
        # Kept: a name that is a function stays one when a module of the same name is imported.
        setattr(module, name, getattr(import_module(homes[name]), name))
        return vars(module)[name]

    return find, lambda: sorted({*vars(module), *homes}), list(homes)


def homes_in(source: str) -> dict[str, str]:
    """The names that a file imports below `if TYPE_CHECKING:`, each with its module."""
    return {
        alias.name: str(line.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
