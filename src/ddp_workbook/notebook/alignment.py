"""Two listings put side by side: which line became which."""

import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ddp_workbook.notebook.listing import Line

CONTEXT = 2  # equal lines shown around a change
ALIKE = 0.5  # from this likeness on, two lines stand in one row as a line that was changed


@dataclass(frozen=True)
class Row:
    """A line of the old code beside its counterpart in the new; either may be missing."""

    old: Line | None
    new: Line | None
    equal: bool = False

    @property
    def counts(self) -> bool:
        """Whether code changed here: a comment alone does not count."""
        return not self.equal and any(line and not line.is_comment for line in (self.old, self.new))


def aligned(old: list[Line], new: list[Line]) -> list[Row]:
    """The rows in order; lines with the same code are equal, whatever the comment behind it.

    A comment that the new code no longer repeats has no row.
    """
    keys = [[line.code or line.text.strip() for line in side] for side in (old, new)]
    matcher = difflib.SequenceMatcher(None, *keys, autojunk=False)
    rows: list[Row] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            rows += [Row(*pair, equal=True) for pair in zip(old[a:b], new[c:d], strict=True)]
        else:
            rows += paired(old[a:b], new[c:d])
    return [row for row in rows if row.new or not row.old.is_comment]


def paired(old: list[Line], new: list[Line]) -> list[Row]:
    """Rows of a changed place: lines that are alike stand side by side, and none cross."""
    pairs: list[tuple[int, int]] = []
    for i, j in by_likeness(old, new):
        if all(i != k and j != m and (i < k) == (j < m) for k, m in pairs):
            pairs.append((i, j))
    rows: list[Row] = []
    a = b = 0
    for i, j in [*sorted(pairs), (len(old), len(new))]:
        rows += [Row(line, None) for line in old[a:i]] + [Row(None, line) for line in new[b:j]]
        rows += [Row(*pair) for pair in zip(old[i : i + 1], new[j : j + 1], strict=True)]
        a, b = i + 1, j + 1
    return rows


def by_likeness(old: list[Line], new: list[Line]) -> list[tuple[int, int]]:
    """Places of the pairs of lines that are alike, the most similar first."""
    likeness = {}
    for (i, a), (j, b) in itertools.product(enumerate(old), enumerate(new)):
        matcher = difflib.SequenceMatcher(None, a.code, b.code, autojunk=False)
        if a.code and b.code and matcher.quick_ratio() >= ALIKE <= matcher.ratio():
            likeness[i, j] = matcher.ratio()
    return sorted(likeness, key=likeness.__getitem__, reverse=True)


def blocks(rows: list[Row]) -> Iterator[list[Row] | int]:
    """Runs of rows to show, and between them the number of equal ones to leave out."""
    changed = [at for at, row in enumerate(rows) if not row.equal]
    shown = {at for place in changed for at in range(place - CONTEXT, place + CONTEXT + 1)}
    shown |= {-1, len(rows)} if changed else set()
    shown |= {at for at in range(len(rows)) if at - 1 in shown and at + 1 in shown}
    for is_shown, run in itertools.groupby(enumerate(rows), key=lambda pair: pair[0] in shown):
        block = [row for _, row in run]
        yield block if is_shown else len(block)


def equal_lines(count: int) -> str:
    """What stands in the place of `count` equal rows: `… 12 equal lines`."""
    return f"… {count} equal {'line' if count == 1 else 'lines'}"
