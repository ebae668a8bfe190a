"""`what_changed`: the difference between two pieces of code, side by side, computed from files."""

import ast
import difflib
import inspect
import itertools
import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pygments
from jupyterlab_pygments import JupyterStyle
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.token import Comment
from pygments.util import ClassNotFound

from manyranks.diagnostics.parsing import parse_source
from manyranks.errors import WorkbookError

MINUS = "\N{MINUS SIGN}"  # as wide as the plus
CONTEXT = 2  # equal lines shown around a change
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Blue and orange at low opacity: distinguishable with any colour vision, legible on light and dark.
STYLE = """<style>
table.ddpw-diff.ddpw-diff { border-collapse: collapse; table-layout: fixed; width: 100%;
  color: var(--jp-content-font-color1, inherit); font-size: 12px; line-height: 1.4;
  font-family: var(--jp-code-font-family, monospace); }
table.ddpw-diff.ddpw-diff caption { caption-side: top; text-align: left; padding: 4px 0;
  color: inherit; font-family: var(--jp-content-font-family, sans-serif); }
table.ddpw-diff.ddpw-diff tr { background: none; border: none; }
table.ddpw-diff.ddpw-diff th, table.ddpw-diff.ddpw-diff td { border: none; text-align: left;
  vertical-align: top; padding: 0 6px; max-width: none; color: inherit; }
table.ddpw-diff.ddpw-diff .number { text-align: right; width: 2.6em; white-space: nowrap; }
table.ddpw-diff.ddpw-diff td.code { white-space: pre-wrap; overflow-wrap: anywhere;
  padding-left: calc(var(--indent) + 5ch); text-indent: calc(-1 * var(--indent) - 4ch); }
table.ddpw-diff.ddpw-diff .removed { background: rgba(230, 140, 0, .16); }
table.ddpw-diff.ddpw-diff .added { background: rgba(86, 180, 233, .18); }
table.ddpw-diff.ddpw-diff .absent { background: rgba(128, 128, 128, .1); }
table.ddpw-diff.ddpw-diff .gap { text-align: center; font-style: italic; padding: 2px; }
table.ddpw-diff mark { color: inherit; background: rgba(128, 128, 128, .2);
  text-decoration: underline; text-underline-offset: 3px; }
</style>"""


class CodeStyle(JupyterStyle):
    """The colours of JupyterLab's editor, light or dark as the page is."""

    styles = JupyterStyle.styles | {Comment: "italic"}  # the editor's grey is too faint on a colour


FORMATTER = HtmlFormatter(style=CodeStyle, noclasses=True, nowrap=True)


class Line(NamedTuple):
    """A line of a file."""

    number: int
    text: str
    tokens: list[tuple[Any, str]]  # pygments' token type, and the word
    code: str | None  # the text to compare; None for a comment that does not count


class Row(NamedTuple):
    """A line of the old code beside its counterpart in the new; either may be missing."""

    old: Line | None
    new: Line | None
    equal: bool


class Listing(NamedTuple):
    """A piece of code, under a name for a heading."""

    name: str
    path: Path
    tree: ast.Module
    lines: list[Line]


def what_changed(old: Any, new: Any) -> "CodeDiff":
    """Show how the code of `new` differs from that of `old`.

    Each is a module, a function, a class or the path of a file, and is read from its current file.
    Docstrings, empty lines and comments do not count, nor do definitions that `new` imports from
    `old`.

    Raises WorkbookError if there is no source file to read.
    """
    return CodeDiff(listing(old), listing(new))


class CodeDiff:
    """What `what_changed` returns: a table in a notebook, a unified diff in a terminal."""

    def __init__(self, old: Listing, new: Listing):
        self.names = (old.name, new.name)
        if old.name == new.name and old.path != new.path:
            self.names = (f"{old.name} ({old.path})", f"{new.name} ({new.path})")
        definitions = imported_definitions(old, new)
        numbers = {number for lines in definitions.values() for number in lines}
        old_lines = [line for line in old.lines if line.number not in numbers]
        self.rows = align_lines(old_lines, new.lines)
        names = ", ".join(reversed(definitions))
        self.note = f"Left out: {names} (imported, or used by what is imported)." if names else ""

    @property
    def changed_lines(self) -> int:
        """How many lines of code were added, removed or changed; a changed line counts once."""
        pairs = [(row.old, row.new) for row in self.rows if not row.equal]
        return sum(any(line and line.code is not None for line in pair) for pair in pairs)

    @property
    def summary(self) -> str:
        """How much changed, from what to what."""
        count = self.changed_lines
        lines = f"{count} changed {'line' if count == 1 else 'lines'}" if count else "The same code"
        return f"{lines}: {self.names[0]} → {self.names[1]}"

    def __str__(self) -> str:
        lines = [self.summary, self.note, f"--- {self.names[0]}", f"+++ {self.names[1]}"]
        for block in blocks(self.rows):
            if isinstance(block, str):
                lines.append(block)
                continue
            for equal, run in itertools.groupby(block, key=lambda row: row.equal):
                rows = list(run)
                lines += [f"-{row.old.text}" for row in rows if row.old and not equal]
                lines += [f"{' ' if equal else '+'}{row.new.text}" for row in rows if row.new]
        return "\n".join(filter(None, lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        old, new = map(escape, self.names)
        caption = f"{self.summary}. {MINUS} marks an old line, + a new one. {self.note}"
        html = [
            f'{STYLE}<table class="ddpw-diff mathjax_ignore"><caption>{escape(caption)}</caption>',
            f'<thead><tr><th scope="col" class="number">line</th><th scope="col">{old}</th>',
            f'<th scope="col" class="number">line</th><th scope="col">{new}</th></tr></thead>',
            "<tbody>",
        ]
        for block in blocks(self.rows):
            if isinstance(block, str):
                html.append(f'<tr><td class="gap" colspan="4">{block}</td></tr>')
            else:
                html += [f"<tr>{cells(row, 'old')}{cells(row, 'new')}</tr>" for row in block]
        return "\n".join([*html, "</tbody></table>"])


def place(thing: Any) -> tuple[Path, str]:
    """The file that holds `thing`, and its qualified name in it; "" for the whole file."""
    if isinstance(thing, str | os.PathLike):
        if os.path.isdir(thing):
            raise WorkbookError(f"{thing} is a folder: give the path of a file in it.")
        if not os.path.isfile(thing):
            raise WorkbookError(f"There is no file {thing} (seen from {Path.cwd()}).")
        if Path(thing).suffix == ".ipynb":
            raise WorkbookError(f"{thing} is a notebook: what_changed reads Python and text files.")
        return Path(thing), ""
    thing = inspect.unwrap(thing)
    name = getattr(thing, "__qualname__", "").replace("<locals>.", "")
    try:
        path = Path(inspect.getfile(thing))
    except (TypeError, OSError):  # not written in Python; a class of a notebook cell
        path = Path()
    if "<lambda>" in name:
        raise WorkbookError("A lambda has no name: write it as a function with `def`.")
    if name and not path.is_file() and thing.__module__ == "__main__":
        raise WorkbookError(
            f"`{name}` was defined in a notebook cell, but what_changed reads files.\n"
            f"Put it into a file: `%%writefile my_train.py`, then `from my_train import {name}`."
        )
    if path.suffix != ".py" or not path.is_file():
        raise WorkbookError(
            f"{thing!r:.80} has no Python source file.\n"
            "what_changed compares modules, functions, classes and paths of files."
        )
    return path, name


def listing(thing: Any) -> Listing:
    """The lines of a module, function, class or path, from its current file."""
    path, name = place(thing)
    is_python, first = path.suffix == ".py", 1
    text, tree = read_python(path)
    if name:
        text, first = definition(text, tree, name)
        tree = parse_source(text)
    docstrings = docstring_lines(tree)
    lines = []
    for number, tokens in enumerate(tokens_of_lines(text, path), start=1):
        line = "".join(word for _, word in tokens)
        code = "".join(word for kind, word in tokens if kind not in Comment).rstrip()
        if not is_python:  # in a job script, #SBATCH is not a comment
            code = line
        if line.strip() and number not in docstrings:
            lines.append(Line(first - 1 + number, line, tokens, code or None))
    return Listing(f"{path.stem}.{name}" if name else path.name, path, tree, lines)


def read_python(path: Path) -> tuple[str, ast.Module]:
    """A file's text and its tree; an empty tree for a file that is not Python."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, parse_source(text if path.suffix == ".py" else "")
    except (UnicodeDecodeError, SyntaxError) as error:
        raise WorkbookError(f"{path} cannot be read: {error}.") from None


def definition(text: str, tree: ast.Module, qualname: str) -> tuple[str, int]:
    """The text of a definition, at the left margin, and the number of its first line."""
    # inspect.getsource looks where the definition was at import; an edit may have moved it.
    node: Any = tree
    for name in qualname.split("."):
        inner = (n for n in ast.walk(node) if isinstance(n, DEFINITIONS) and n.name == name)
        node = next(inner, None)
        if node is None:
            raise WorkbookError(f"`{qualname}` is no longer in the file that it came from.")
    first = min(part.lineno for part in (node, *node.decorator_list))
    return dedent("\n".join(text.split("\n")[first - 1 : node.end_lineno])), first


def docstring_lines(tree: ast.Module) -> set[int]:
    """Numbers of the lines that hold only docstrings."""
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node) is not None:
            first = node.body[0]
            begin = max(first.lineno, getattr(node, "lineno", 0) + 1)
            numbers.update(range(begin, (first.end_lineno or first.lineno) + 1))
    return numbers


def imported_definitions(old: Listing, new: Listing) -> dict[str, range]:
    """Definitions that `new` imports from `old`, and those that they need: name -> lines."""
    imports = [node for node in ast.walk(new.tree) if isinstance(node, ast.ImportFrom)]
    imports = [node for node in imports if (node.module or "").endswith(old.path.stem)]
    names = {alias.name for node in imports for alias in node.names}
    line_ranges = {}
    for node in reversed(old.tree.body):  # a function's helpers are above it
        target = getattr(node, "targets", [None])[0]
        name = getattr(node, "name", getattr(target, "id", None))
        if name in names:
            line_ranges[name] = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            names |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return line_ranges


def tokens_of_lines(text: str, path: Path) -> list[list[tuple[Any, str]]]:
    """The tokens of each line of `text`, cut into words."""
    try:
        lexer = get_lexer_for_filename(path.name, stripnl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    lines: list[list[tuple[Any, str]]] = [[]]
    # The whole text at once: a single line does not show that it is in a triple-quoted string.
    for kind, part in lexer.get_tokens(text.rstrip()):
        for word in re.findall(r"\n|\w+|[^\S\n]+|.", part):
            if word == "\n":
                lines.append([])
            else:
                lines[-1].append((kind, word))
    return lines[:-1]


def align_lines(old: list[Line], new: list[Line]) -> list[Row]:
    """The rows in order; lines that differ little share one. A removed comment has none."""
    before_keys, after_keys = (
        [line.text if line.code is None else line.code for line in lines] for lines in (old, new)
    )
    # Below lines that ndiff takes for a pair, it writes a line of hints with a question mark.
    marks = "".join(line[0] for line in difflib.ndiff(before_keys, after_keys))
    olds, news, rows = iter(old), iter(new), []
    for step in re.findall(r"-\?\+\??|-\+\?|.", marks):
        before = next(olds) if step[0] in " -" else None
        after = next(news) if step == " " or "+" in step else None
        if after or (before and before.code is not None):
            rows.append(Row(before, after, step == " "))
    return rows


def blocks(rows: list[Row]) -> Iterator[list[Row] | str]:
    """Runs of rows to show, and for each run that is left out a line with its length."""
    changes = [at for at, row in enumerate(rows) if not row.equal]
    visible = {-1, len(rows), *(at + d for at in changes for d in range(-CONTEXT, CONTEXT + 1))}
    visible |= {at for at in range(len(rows)) if {at - 1, at + 1} <= visible}  # a gap of one row
    for show, run in itertools.groupby(enumerate(rows), key=lambda pair: pair[0] in visible):
        block = [row for _, row in run]
        count = len(block)
        yield block if show else f"… {count} equal {'line' if count == 1 else 'lines'}"


def cells(row: Row, side: str) -> str:
    """Number and code of one side; words that the other side does not have are marked."""
    line, counterpart = (row.old, row.new) if side == "old" else (row.new, row.old)
    if line is None:
        return '<td class="number absent"></td><td class="absent"></td>'
    sign, kind = (MINUS, "removed") if side == "old" else ("+", "added")
    if row.equal:
        sign, kind = " ", "equal"
    other_tokens = counterpart.tokens if counterpart and not row.equal else line.tokens
    html = ""
    matcher = difflib.SequenceMatcher(None, line.tokens, other_tokens)
    for what, start, stop, *_ in matcher.get_opcodes():
        if words := pygments.format(line.tokens[start:stop], FORMATTER).rstrip("\n"):
            html += words if what == "equal" else f"<mark>{words}</mark>"
    indent = len(line.text) - len(line.text.lstrip())  # where a wrapped line continues
    return (
        f'<td class="number {kind}">{line.number}</td>'
        f'<td class="code {kind}" style="--indent: {indent}ch">{sign} {html}</td>'
    )
