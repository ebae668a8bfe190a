"""The verdict on a cell with a syntax error, which is not run at all."""

import re
import textwrap
import traceback
import warnings

from ddp_workbook.judging.attempts import YOUR_CELL
from manyranks.diagnostics.parsing import parse_source

MAGIC = re.compile(r"^\s*[%!?]|=\s*[%!]|\?\s*$")
ODD_CHARACTERS = re.compile(r"invalid character|non-printable|null bytes|surrogates")


def syntax_error_rows(code: str) -> list[tuple[str, str]]:
    """Rows of a verdict: line, error, where to look; no rows for valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(parse_source(f"\n{code}", YOUR_CELL), YOUR_CELL, "exec")
        return []
    except SyntaxError as error:
        lines = traceback.format_exception_only(error)
        shown = [line for line in lines if not line.startswith("  File ")]
        where = f"line {error.lineno}" if error.lineno else "your cell"
        text = textwrap.dedent("".join(shown[:-1])) + shown[-1]
        return [(where, text), ("look at", _look_at(code, error))]
    except UnicodeError as error:
        return [("your cell", str(error)), ("look at", _look_at(code, error))]
    except (ValueError, RecursionError, MemoryError) as error:
        message = str(error) or "brackets or operators nested too deeply for Python"
        return [("your cell", message), ("look at", _look_at(code, error))]


def _look_at(code: str, error: Exception) -> str:
    number = getattr(error, "lineno", None) or 0
    lines = code.split("\n")
    line = lines[number - 2] if 2 <= number <= len(lines) + 1 else ""
    if MAGIC.search(line):
        return "An exercise's cell may hold only Python: no %, ! or ? commands."
    if ODD_CHARACTERS.search(str(error)):
        return "Was it pasted? It has a character that is invisible, or looks like another one."
    if isinstance(error, IndentationError):
        return "The indentation of this line and of the line before it. Use only spaces."
    if not number:
        return "Which part of the cell was not written by hand?"
    return "This line, or a bracket or quotation mark that was opened before it."
