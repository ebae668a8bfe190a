"""The lines of a function, class, module or file, read from the file as it is now."""

import ast
import functools
import inspect
import io
import os
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ddp_workbook.errors import WorkbookError

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NO_SOURCE = "`{}` is not written in Python: it has no source file to compare."
WRONG_THING = "what_changed compares modules, functions, classes and paths; got a {} object."
FROM_CELL = (
    "`{0}` was defined in a notebook cell, and what_changed reads files.\n"
    "Put it into a file: `%%writefile my_train.py`, then `from my_train import {0}`."
)


@dataclass(frozen=True)
class Line:
    """One line of a file: its number there, its text, and the code in it without the comment."""

    number: int
    text: str
    code: str

    @property
    def is_comment(self) -> bool:
        """Whether the line is a comment and nothing else."""
        return not self.code and bool(self.text.strip())


@dataclass(frozen=True)
class Listing:
    """Lines to compare, a short name for a heading, and the path of their file."""

    name: str
    path: Path
    lines: list[Line]


def read(thing: Any, *, comments: bool) -> Listing:
    """The listing of a module, function, class or path; with `comments`, every line counts as code.

    Without, docstrings and empty lines are left out. Raises WorkbookError where there is no file.
    """
    path, qualname, near = place(thing)
    text = text_of(path)
    name = f"{path.stem}.{qualname.replace('<locals>.', '')}" if qualname else path.name
    lines = [Line(n, line, line) for n, line in enumerate(text.rstrip("\n").split("\n"), start=1)]
    if path.suffix != ".py":
        return Listing(name, path, lines)
    node: ast.AST = parsed(text, path)
    if qualname:
        node = find(node, qualname, near, path)
    if not comments:
        lines = code_alone(lines, text, node)
    return Listing(name, path, cut_out(lines, node))


def place(thing: Any) -> tuple[Path, str, int]:
    """The file of `thing`, its qualified name in there ('' for all of it), and about which line."""
    if isinstance(thing, str | os.PathLike):
        return existing(Path(thing)), "", 0
    while isinstance(thing, functools.partial):
        thing = thing.func
    if isinstance(thing, ModuleType):
        return source_of(thing, thing.__name__), "", 0
    thing = inspect.unwrap(getattr(thing, "__func__", thing))
    if isinstance(thing, FunctionType):
        if thing.__name__ == "<lambda>":
            raise WorkbookError("A lambda has no name to find it by: write it with `def`.")
        return of_function(thing), thing.__qualname__, thing.__code__.co_firstlineno
    if isinstance(thing, type):
        name = thing.__qualname__
        return source_of(sys.modules.get(thing.__module__), name), name, 0
    if inspect.isroutine(thing):
        raise WorkbookError(NO_SOURCE.format(getattr(thing, "__name__", thing)))
    raise WorkbookError(WRONG_THING.format(type(thing).__name__))


def existing(path: Path) -> Path:
    """The path itself, if it is a file to read as text."""
    if os.path.isdir(path):
        raise WorkbookError(f"{path} is a folder: give the path of a file in it.")
    if not os.path.isfile(path):
        raise WorkbookError(f"There is no file {path} (seen from {Path.cwd()}).")
    if path.suffix == ".ipynb":
        raise WorkbookError(f"{path} is a notebook: what_changed reads Python and text files.")
    return path


def of_function(function: FunctionType) -> Path:
    """The file that a function was read from."""
    path = Path(function.__code__.co_filename)
    if path.is_file():
        return path
    if function.__module__ == "__main__":
        raise WorkbookError(FROM_CELL.format(function.__name__))
    raise WorkbookError(f"`{function.__name__}` came from {path}, and that file is not there.")


def source_of(module: ModuleType | None, name: str) -> Path:
    """The Python file of a module; `name` is what the reader asked for."""
    file = getattr(module, "__file__", None)
    if file and file.endswith(".py"):
        return existing(Path(file))
    if module is sys.modules["__main__"]:
        raise WorkbookError(FROM_CELL.format(name))
    raise WorkbookError(NO_SOURCE.format(name))


def text_of(path: Path) -> str:
    """The file's text, in the encoding that its first lines declare, or UTF-8."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, ValueError):
        raise WorkbookError(f"{path} is not a text file in UTF-8.") from None
    except OSError as error:
        raise WorkbookError(f"{path} cannot be read: {error.strerror}.") from None


def parsed(text: str, path: Path) -> ast.Module:
    """The file's syntax tree."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        where = f", line {error.lineno}" if getattr(error, "lineno", None) else ""
        raise WorkbookError(f"{path}{where}: Python cannot read this file ({error}).") from None


def find(tree: ast.AST, qualname: str, near: int, path: Path) -> ast.AST:
    """The definition with that qualified name; of several, the one nearest to line `near`."""
    nodes: list[ast.AST] = [tree]
    for name in qualname.replace("<locals>.", "").split("."):
        nodes = [inner for node in nodes for inner in definitions(node) if inner.name == name]
    if not nodes:
        raise WorkbookError(f"`{qualname}` is no longer in {path}: was it renamed or removed?")
    return min(nodes, key=lambda node: abs(node.lineno - near))


def definitions(node: ast.AST) -> Iterator[ast.AST]:
    """Functions and classes directly in `node`, also those under an `if` or a `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINITIONS):
            yield child
        else:
            yield from definitions(child)


def cut_out(lines: list[Line], node: ast.AST) -> list[Line]:
    """The lines of `node`, with its decorators, moved to the left margin."""
    if isinstance(node, ast.Module):
        return lines
    first = min(part.lineno for part in (node, *node.decorator_list))
    return [
        Line(line.number, outdent(line.text, node.col_offset), outdent(line.code, node.col_offset))
        for line in lines
        if first <= line.number <= node.end_lineno
    ]


def outdent(text: str, columns: int) -> str:
    """The text without its first `columns` spaces, or as many as it has."""
    return text[min(columns, len(text) - len(text.lstrip())) :]


def code_alone(lines: list[Line], text: str, node: ast.AST) -> list[Line]:
    """Without docstrings and empty lines; `code` without the comment."""
    comment_at = {
        token.start[0]: token.start[1]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    left_out = docstring_lines(node)
    return [
        Line(line.number, line.text, line.text[: comment_at.get(line.number)].rstrip())
        for line in lines
        if line.text.strip() and line.number not in left_out
    ]


def docstring_lines(tree: ast.AST) -> set[int]:
    """Numbers of the lines that docstrings have for themselves."""
    numbers = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            begin = max(docstring.lineno, getattr(node, "lineno", 0) + 1)
            numbers.update(range(begin, docstring.end_lineno + 1))
    return numbers
