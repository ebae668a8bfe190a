"""The reader's files that ranks are about to run: says which of them somebody else has changed.

Two kernels, or a kernel and an editor, may work in one folder. A kernel remembers its files as it
wrote or imported them. At a launch it looks at those that the worker imports, and says which are
different now; the ranks run them as they are.
"""

import ast
import linecache
import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ddp_workbook.diagnostics import user_code
from ddp_workbook.source_tree import parsed

CHANGED = (
    "{file} is not as this notebook {did} it: it was changed in an editor, or by another notebook. "
    "The ranks run it as it is now.{mend}"
)
MEND = " To have this notebook's own again, run the cell that writes it."
WROTE, IMPORTED = "wrote", "imported"
LOG = logging.getLogger(__name__)


@dataclass
class Known:
    """A file as this kernel `did` write or import it; the reader knows the text `announced`."""

    data: bytes
    did: str
    announced: bytes | None = None


KNOWN: dict[str, Known] = {}  # by real path; empty in a process that does not watch imports
SPECS: dict[str, object] = {}  # of modules already looked at; a reload makes a new spec


def wrote(path: str | os.PathLike, data: bytes) -> None:
    """Remember that this kernel has written `data`, the whole file."""
    KNOWN[os.path.realpath(path)] = Known(data, WROTE)


def note_imports(*_: object) -> None:
    """Remember the reader's files that this kernel has imported, or reloaded, since the last call.

    Launches look at files from the first call of this function on. It runs after each cell and
    before each launch, which would take the blame for an error in here: so that is only logged.
    """
    # A copy, made in one step: another thread of the kernel may import meanwhile, and
    # `list(sys.modules.items())` lets it.
    for name, module in sys.modules.copy().items():
        try:
            _note_import(name, module)
        except Exception:
            LOG.debug("%s was not looked at", name, exc_info=True)


def _note_import(name: str, module: ModuleType) -> None:
    namespace = getattr(module, "__dict__", {})
    spec, file = namespace.get("__spec__"), namespace.get("__file__")
    if spec is None or SPECS.get(name) is spec:
        return
    SPECS[name] = spec
    if not isinstance(file, str) or not _is_the_readers(file):
        return
    real = os.path.realpath(file)
    if real not in KNOWN or KNOWN[real].did == IMPORTED:
        data = _read(real)
        if data is not None:
            KNOWN[real] = Known(data, IMPORTED)


def say_what_changed(starts: Iterable[str], text: str = "") -> None:
    """Print a line for each known file that someone else has changed, once for each change.

    Looked at are `starts` and all that they, or a cell's `text`, import.
    """
    if SPECS:
        note_imports()
    if not KNOWN:
        return
    found: dict[str, bytes] = {}
    waiting = [os.path.realpath(file) for file in starts if _is_the_readers(file)]
    waiting += _imports(text)
    while waiting:
        file = waiting.pop()
        if file not in found and (data := _read(file)) is not None:
            found[file] = data
            waiting += _imports(data)
    for file in sorted(found.keys() & KNOWN.keys()):
        data, known = found[file], KNOWN[file]
        if data not in (known.data, known.announced):
            mend = MEND if known.did == WROTE else ""
            name = user_code.short(file)
            print(CHANGED.format(file=name, did=known.did, mend=mend), flush=True)
        known.announced = data


def keep_lines(path: str, text: str) -> None:
    """Make errors of this process show these lines for `path`, whatever the file holds later."""
    # Without a modification time, linecache does not read the file again.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def forget_lines(path: str) -> None:
    """Make errors of this process show the file again as it is."""
    linecache.cache.pop(path, None)


def _is_the_readers(file: str) -> bool:
    """True for a file that belongs neither to a library nor to the workbook."""
    is_source = file.endswith(".py") and not file.startswith(user_code.BOOK)
    return is_source and not user_code.is_library(file)


def _read(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes()
    except OSError:  # deleted since then: the rank that imports it says so
        return None


def _imports(source: str | bytes) -> list[str]:
    """The known files that `source` imports anywhere in its text."""
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the rank says so
        return []
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(f"{node.module or ''}.{a.name}" for a in node.names)}
    parts = [name.strip(".").replace(".", os.sep) for name in names if name]
    ends = [f"{os.sep}{part}{end}" for part in parts for end in (".py", f"{os.sep}__init__.py")]
    return [file for file in KNOWN if file.endswith(tuple(ends))]
