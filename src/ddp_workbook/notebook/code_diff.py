"""`what_changed`: the difference between two pieces of code, side by side, computed from files."""

import itertools
from collections.abc import Iterator
from typing import Any

from ddp_workbook.notebook import listing, side_by_side
from ddp_workbook.notebook.alignment import Row, aligned, blocks, equal_lines
from ddp_workbook.notebook.listing import Listing


def what_changed(old: Any, new: Any, *, comments: bool = False) -> "Comparison":
    """Show how the code of `new` differs from that of `old`.

    Each is a module, a function, a class or the path of a file, and is read from its file as it
    is now. Compared is the code: docstrings, empty lines and comments that were dropped are left
    out, a new comment is shown but not counted. `comments=True` compares every line as it stands.

    Raises WorkbookError, in plain words, where there is no source file to read.
    """
    return Comparison(*(listing.read(thing, comments=comments) for thing in (old, new)))


class Comparison:
    """What `what_changed` returns: a table in a notebook, a unified diff in a terminal."""

    def __init__(self, old: Listing, new: Listing):
        self.rows = aligned(old.lines, new.lines)
        self.names = (old.name, new.name)
        if old.name == new.name and old.path != new.path:
            self.names = (f"{old.name} ({old.path})", f"{new.name} ({new.path})")

    @property
    def changed_lines(self) -> int:
        """Rows of the table in which code differs: a line that was changed counts once."""
        return sum(row.counts for row in self.rows)

    @property
    def summary(self) -> str:
        """One line: how much changed, from what to what."""
        count = self.changed_lines
        lines = f"{count} changed {'line' if count == 1 else 'lines'}" if count else "The same code"
        return f"{lines}: {self.names[0]} → {self.names[1]}"

    def __str__(self) -> str:
        parts = [self.summary, f"--- {self.names[0]}", f"+++ {self.names[1]}"]
        for block in blocks(self.rows):
            parts += [equal_lines(block)] if isinstance(block, int) else hunk(block)
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return side_by_side.page(self.rows, self.names, self.summary)


def hunk(block: list[Row]) -> Iterator[str]:
    """A block as in a unified diff: from which lines on, then what goes before what comes."""
    old = next((row.old.number for row in block if row.old), 0)
    new = next((row.new.number for row in block if row.new), 0)
    yield f"@@ -{old} +{new} @@"
    for equal, run in itertools.groupby(block, key=lambda row: row.equal):
        rows = list(run)
        if not equal:
            yield from (f"-{row.old.text}" for row in rows if row.old)
        yield from (f"{' ' if equal else '+'}{row.new.text}" for row in rows if row.new)
