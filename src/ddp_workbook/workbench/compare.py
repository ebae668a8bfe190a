"""`what_changed`: the difference between two pieces of code, side by side, computed from the files."""

import difflib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from ddp_workbook.workbench import listing
from ddp_workbook.workbench.listing import Line, Listing

CONTEXT = 2  # equal lines shown around a change
ALIKE = 0.5  # from this likeness on, two lines stand in one row as a line that was changed

# Blue and orange at low opacity: told apart with any colour vision, legible on light and dark.
STYLE = """<style>
table.ddpw-diff.ddpw-diff { border-collapse: collapse; table-layout: fixed; width: 100%;
  color: var(--jp-content-font-color1, inherit); font-size: var(--jp-code-font-size, 13px);
  font-family: var(--jp-code-font-family, monospace); line-height: 1.4; }
table.ddpw-diff caption { caption-side: top; text-align: left; padding: 4px 0;
  color: var(--jp-content-font-color1, inherit); font-family: var(--jp-content-font-family, inherit); }
table.ddpw-diff.ddpw-diff tr { background: none; border: none; }
table.ddpw-diff.ddpw-diff th, table.ddpw-diff.ddpw-diff td { border: none; text-align: left;
  vertical-align: top; padding: 0 6px; max-width: none; }
table.ddpw-diff.ddpw-diff thead th { padding: 4px 6px;
  border-bottom: 1px solid var(--jp-border-color1, #888); }
table.ddpw-diff.ddpw-diff .number { text-align: right; width: 3.5em; white-space: nowrap;
  color: var(--jp-content-font-color2, inherit); }
table.ddpw-diff.ddpw-diff .code { white-space: pre-wrap; overflow-wrap: anywhere;
  padding-left: 2.2em; text-indent: -1.6em; }
table.ddpw-diff.ddpw-diff .code * { text-indent: 0; }
table.ddpw-diff.ddpw-diff .new { border-left: 1px solid var(--jp-border-color1, #888); }
table.ddpw-diff.ddpw-diff .removed { background: rgba(213, 94, 0, .14); }
table.ddpw-diff.ddpw-diff .added { background: rgba(0, 114, 178, .16); }
table.ddpw-diff.ddpw-diff .absent { background: rgba(128, 128, 128, .08); }
table.ddpw-diff del, table.ddpw-diff ins { color: inherit; font-weight: bold; border-radius: 2px; }
table.ddpw-diff del { background: rgba(213, 94, 0, .32); text-decoration: none; }
table.ddpw-diff ins { background: rgba(0, 114, 178, .34); text-decoration: none; }
table.ddpw-diff.ddpw-diff .gap { text-align: center; font-style: italic; padding: 2px;
  color: var(--jp-content-font-color2, inherit); }
</style>"""


@dataclass(frozen=True)
class Row:
    """A line of the old code beside its counterpart in the new, either of which may be missing."""

    old: Line | None
    new: Line | None
    equal: bool = False

    @property
    def counts(self) -> bool:
        """Whether code changed here: a comment that came or changed does not count."""
        return not self.equal and not all(line.is_comment for line in self.lines)

    @property
    def lines(self) -> list[Line]:
        """The lines that are there."""
        return [line for line in (self.old, self.new) if line is not None]


class Comparison:
    """What `what_changed` returns: a table in a notebook, a unified diff in a terminal."""

    def __init__(self, old: Listing, new: Listing):
        self.old, self.new = old, new
        self.rows = [row for row in aligned(old.lines, new.lines) if not is_dropped_comment(row)]

    @property
    def changed_lines(self) -> int:
        """Rows of the table in which code differs: a changed line counts once, not twice."""
        return sum(row.counts for row in self.rows)

    def names(self) -> tuple[str, str]:
        """What to call the two sides: by their paths if the short names are the same."""
        if self.old.name != self.new.name or self.old.path == self.new.path:
            return self.old.name, self.new.name
        return f"{self.old.name} ({self.old.path})", f"{self.new.name} ({self.new.path})"

    def summary(self) -> str:
        """One line: how much changed, from what to what."""
        old, new = self.names()
        lines = f"{self.changed_lines} changed {plural(self.changed_lines, 'line')}"
        return f"{lines if self.changed_lines else 'The same code'}, from {old} to {new}"

    def __str__(self) -> str:
        old, new = self.names()
        parts = [self.summary(), f"--- {old}", f"+++ {new}"]
        for block in blocks(self.rows):
            parts += [f"  … {hidden(block)}"] if isinstance(block, int) else as_text(block)
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        old, new = self.names()
        body = [
            f'<tr><td class="gap" colspan="4">… {hidden(block)}</td></tr>'
            if isinstance(block, int)
            else "\n".join(map(as_html, block))
            for block in blocks(self.rows)
        ]
        return "\n".join([
            STYLE,
            '<table class="ddpw-diff">',
            f"<caption>{escape(self.summary())}. − marks the old line, + the new one.</caption>",
            '<thead><tr><th scope="col" class="number">line</th>',
            f'<th scope="col">{escape(old)}</th>',
            '<th scope="col" class="number new">line</th>',
            f'<th scope="col">{escape(new)}</th></tr></thead>',
            "<tbody>", *body, "</tbody></table>",
        ])  # fmt: skip


def what_changed(old: Any, new: Any, *, comments: bool = False) -> Comparison:
    """Show how the code of `new` differs from that of `old`.

    Each is a module, a function, a class or the path of a file, and is read from its file as it is
    now. Compared is the code: docstrings, empty lines and comments that were dropped are left out,
    a new comment is shown but not counted. `comments=True` compares every line as it stands.
    `.changed_lines` of the result counts the rows that differ.

    Raises WorkbookError, in plain words, where there is no source file to read.
    """
    return Comparison(*(listing.read(thing, comments=comments) for thing in (old, new)))


def aligned(old: list[Line], new: list[Line]) -> Iterator[Row]:
    """The rows in order; equal is what has the same code, whatever the comment behind it."""
    keys = [[line.code or line.text.strip() for line in side] for side in (old, new)]
    matcher = difflib.SequenceMatcher(None, *keys, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            yield from (Row(*pair, equal=True) for pair in zip(old[a:b], new[c:d], strict=True))
        else:
            yield from paired(old[a:b], new[c:d])


def paired(old: list[Line], new: list[Line]) -> list[Row]:
    """Put the two most similar lines side by side, then do the same above and below them."""
    likeness = {
        (i, j): difflib.SequenceMatcher(None, a.code, b.code, autojunk=False).ratio()
        for i, a in enumerate(old)
        for j, b in enumerate(new)
        if a.code and b.code
    }
    best = max(likeness, key=likeness.__getitem__, default=None)
    if best is None or likeness[best] < ALIKE:
        return [Row(line, None) for line in old] + [Row(None, line) for line in new]
    i, j = best
    below = paired(old[i + 1 :], new[j + 1 :])
    return [*paired(old[:i], new[:j]), Row(old[i], new[j]), *below]


def is_dropped_comment(row: Row) -> bool:
    """Whether the row is a comment that the new code no longer repeats."""
    return row.new is None and row.old.is_comment


def blocks(rows: list[Row]) -> Iterator[list[Row] | int]:
    """Runs of rows to show, and between them the number of equal ones to leave out."""
    shown = [False] * len(rows)
    for at, row in enumerate(rows):
        if not row.equal:
            near = range(max(0, at - CONTEXT), min(len(rows), at + CONTEXT + 1))
            for place in near:
                shown[place] = True
    for is_shown, run in itertools.groupby(zip(rows, shown, strict=True), key=lambda pair: pair[1]):
        block = [row for row, _ in run]
        yield block if is_shown or len(block) == 1 else len(block)


def hidden(count: int) -> str:
    """`12 equal lines`."""
    return f"{count} equal {plural(count, 'line')}"


def plural(count: int, noun: str) -> str:
    """The noun with the ending that `count` asks for."""
    return noun if count == 1 else noun + "s"


def as_text(block: list[Row]) -> Iterator[str]:
    """A block as in a unified diff: where it is, then what goes before what comes."""
    starts = (next((getattr(r, s).number for r in block if getattr(r, s)), 0) for s in ("old", "new"))
    yield "@@ -{} +{} @@".format(*starts)
    for equal, run in itertools.groupby(block, key=lambda row: row.equal):
        rows = list(run)
        if not equal:
            yield from (f"-{row.old.text}" for row in rows if row.old)
        yield from (f"{' ' if equal else '+'}{row.new.text}" for row in rows if row.new)


def as_html(row: Row) -> str:
    """A row of the table: number and code of the old line, then of the new one."""
    old, new = marked_words(row)
    return (f"<tr>{cells(row.old, old, '−', 'removed', row.equal)}"
            f"{cells(row.new, new, '+', 'added', row.equal, 'new')}</tr>")


def cells(line: Line | None, code: str, mark: str, kind: str, equal: bool, side: str = "old") -> str:
    """The two cells of one side."""
    if line is None:
        return f'<td class="number {side} absent"></td><td class="code absent"></td>'
    kind, mark = ("equal", " ") if equal else (kind, mark)
    return (f'<td class="number {side} {kind}">{line.number}</td>'
            f'<td class="code {kind}">{mark} {code}</td>')


def marked_words(row: Row) -> tuple[str, str]:
    """The HTML of both lines, with the words that differ in <del> and <ins>."""
    if row.equal or None in (row.old, row.new):
        return tuple(escape(line.text) if line else "" for line in (row.old, row.new))
    words = [re.findall(r"\w+|\s+|.", line.text) for line in (row.old, row.new)]
    sides = ["", ""]
    matcher = difflib.SequenceMatcher(None, *words, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        for side, (name, begin, end) in enumerate((("del", a, b), ("ins", c, d))):
            text = escape("".join(words[side][begin:end]))
            sides[side] += f"<{name}>{text}</{name}>" if tag != "equal" and text else text
    return tuple(sides)
