"""The verdict on a cell that Python cannot read; nothing of it runs then."""

import ast
import re
import textwrap
import traceback
import warnings

from ddp_workbook.exercises.judging.attempts import YOUR_CELL

MAGIC = re.compile(r"^\s*[%!?]|=\s*[%!]|\?\s*$")
PASTED = re.compile(r"invalid character|non-printable|null bytes|surrogates")


def unreadable(code: str) -> list[tuple[str, str]]:
    """Rows of a verdict: line, error, where to look. None of them for a cell that is Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(ast.parse(f"\n{code}", YOUR_CELL), YOUR_CELL, "exec")
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
        said = str(error) or "brackets, or signs, nested too deep for Python to read"
        return [("your cell", said), ("look at", _look_at(code, error))]


def _look_at(code: str, error: Exception) -> str:
    number = getattr(error, "lineno", None) or 0
    lines = code.split("\n")
    line = lines[number - 2] if 2 <= number <= len(lines) + 1 else ""
    if MAGIC.search(line):
        return "Only Python can stand in an exercise's cell: no %, no ! and no ? commands."
    if PASTED.search(str(error)):
        return "Was it pasted? It holds a character that cannot be seen, or looks like another one."
    if isinstance(error, IndentationError):
        return "The margin: this line's, and that of the line before it. One kind, spaces, is best."
    if not number:
        return "What in the cell was not written by hand?"
    return "This line, or a bracket or quotation mark that was opened before it."
