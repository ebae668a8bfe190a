"""`show_code`: shows a program, or a part of it, in colours, read from its file."""

from html import escape
from pathlib import Path
from typing import Any

import pygments
from pygments.lexer import Lexer
from pygments.lexers import BashLexer, PythonLexer

from ddp_workbook.page.code_diff import FORMATTER, definition, place, read_python

STYLE = (
    "margin:0.2em 0 0.9em 0; padding:0.5em 0.8em; overflow-x:auto; line-height:1.4; "
    "background:transparent; border-left:3px solid rgba(128, 128, 128, .5)"
)


class CodeListing:
    """What `show_code` returns: coloured text in a notebook, plain text in a terminal."""

    def __init__(self, pieces: list[tuple[str, str]], lexers: list[Lexer]):
        self.pieces = pieces  # (heading, text)
        self.lexers = lexers

    def _repr_html_(self) -> str:
        return "".join(
            f"<div>{escape(heading)}</div><pre style='{STYLE}'>"
            f"{pygments.highlight(text, lexer, FORMATTER)}</pre>"
            for (heading, text), lexer in zip(self.pieces, self.lexers, strict=True)
        )

    def __repr__(self) -> str:
        return "\n\n".join(f"{heading}\n\n{text}" for heading, text in self.pieces)


def show_code(*things: Any) -> CodeListing:
    """Show functions, classes, methods, modules or files, each from its current file.

    A file that is not Python is shown as a shell script. Raises WorkbookError if there is no source
    file to read.
    """
    places = [place(thing) for thing in things]
    lexers = [PythonLexer() if path.suffix == ".py" else BashLexer() for path, _ in places]
    pieces = []
    for path, name in places:
        text, tree = read_python(path)
        text, first = definition(text, tree, name) if name else (text, 1)
        pieces.append((f"{_short(path)}, from line {first}", text.rstrip()))
    return CodeListing(pieces, lexers)


def _short(path: Path) -> str:
    """The path from the repository's folder on, else from the current folder."""
    parts = path.resolve().parts
    for folder in ("src", "job_scripts"):
        if folder in parts:
            return "/".join(parts[parts.index(folder) :])
    return path.name
