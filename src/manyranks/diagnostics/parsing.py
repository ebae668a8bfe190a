"""Parses Python source where other code may parse at the same moment."""

import ast
from collections.abc import Sequence

TRIES = 20


def parse_source(source: str | bytes, path: str = "<unknown>") -> ast.Module:
    """`ast.parse(source, path)`; raises what it raises.

    CPython 3.11 and 3.12 count the depth of a tree once for the whole process: if the garbage
    collector runs a destructor that parses, or prints a traceback (which parses the line to place
    its carets), the outer parse raises SystemError, "AST constructor recursion depth mismatch"
    (python/cpython#106905). The next try is clean.
    """
    for _ in range(TRIES - 1):
        try:
            return ast.parse(source, path)
        except SystemError:
            continue
    return ast.parse(source, path)


def first_calls(text: str, names: Sequence[str]) -> dict[str, int]:
    """The line of the first call of each of these functions, by whatever path; no other keys."""
    lines: dict[str, int] = {}
    if not any(name in text for name in names):
        return lines
    for node in ast.walk(parse_source(text)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in names:
                lines[name] = min(node.lineno, lines.get(name, node.lineno))
    return lines
