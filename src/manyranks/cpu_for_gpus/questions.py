"""What a program does with the answer to "is there a GPU?", read off the line that asks.

A program that works without a GPU gets the truth, and computes as it always does on such a machine.
One is told that there is a GPU if it would end otherwise, by `assert`, `raise` or `sys.exit`; if it
has used one already; or if it says "nccl" without a condition: without a GPU it would skip what it
is about, as PyTorch's imagenet example skips DistributedDataParallel.
"""

import ast
import itertools
import linecache
import operator
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from types import FrameType
from typing import Any

from manyranks.cpu_for_gpus.requests import REQUESTS
from manyranks.diagnostics.parsing import parse_source
from manyranks.diagnostics.user_code import is_own

MAX_FOLLOWED = 50  # expressions that are followed to find what becomes of an answer
PACKAGE = __name__.rpartition(".")[0]
EXITS = {"exit", "_exit", "quit", "abort", "skip"}
PRINTS = {"print", "warn", "warning", "error", "info", "critical", "exception", "log", "write"}
ABOUT_GPUS = re.compile("(?i)cuda|gpu|accel|avail|device|nccl|backend")
TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)
CONDITIONS = (ast.Compare, ast.BoolOp, ast.UnaryOp)
OPERATORS: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
DIVISIONS = (ast.Mod, ast.FloorDiv, ast.Div)
PROCESSES = {"nprocs", "num_processes", "nproc_per_node", "world_size"}
NEED_A_VALUE = (ast.Attribute, ast.FormattedValue)


def asked_by() -> "Question | None":
    """The question that the reader's own code asks by the call that is running; None for others."""
    frame: Any = sys._getframe(1)
    while frame and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame = frame.f_back
    return Question(frame) if frame and is_own(frame.f_code.co_filename) else None


class Question:
    """A call in a frame that asks for GPUs, and what becomes of its answer."""

    def __init__(self, frame: FrameType):
        self.frame = frame
        self.file = read(frame.f_code.co_filename)
        self.node = self.file.at(frame) if self.file else None
        self.demands: list[int] = []  # numbers that the answer is compared with

    @property
    def wants_a_gpu(self) -> bool:
        """True if the answer is used as it is, or the program is made for GPUs."""
        return not self.is_condition or self.expects_a_gpu

    @property
    def expects_a_gpu(self) -> bool:
        """True for a program that is made for GPUs, or that ends where there is none."""
        files = {self.frame.f_code.co_filename, getattr(sys.modules["__main__"], "__file__", "")}
        own = [read(path) for path in files if path and is_own(path)]
        made_for_gpus = REQUESTS.of_a_gpu or any(file and file.says_nccl for file in own)
        return made_for_gpus or self.leads_to_an_end

    @property
    def is_condition(self) -> bool:
        """True if the program takes one way or another by the answer."""
        parent = self._parent(self.node)
        if isinstance(parent, TESTS):
            return parent.test is self.node
        return isinstance(parent, CONDITIONS)

    @property
    def needs_a_number(self) -> bool:
        """True for a count that something is divided by, or that processes are started for."""
        if self.file is None or self.node is None:
            return False
        parent = self._parent(self.node)
        uses = [self.node]
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            uses += _uses(parent, self.file)
        return any(_needs_a_number(use, self._parent(use)) for use in uses)

    @property
    def fails_with_none(self) -> bool:
        """True if None would be an error: `f().type`, `f"{f()}:0"`, itself or by a variable."""
        parent = self._parent(self.node)
        if not (self.file and isinstance(parent, ast.Assign | ast.AnnAssign)):
            return isinstance(parent, NEED_A_VALUE)
        around = [self._parent(use) for use in _uses(parent, self.file)]
        guarded = any(isinstance(node, (*TESTS, *CONDITIONS)) for node in around)
        return not guarded and any(isinstance(node, NEED_A_VALUE) for node in around)

    @cached_property
    def leads_to_an_end(self) -> bool:
        """True if the program ends, or says something and returns, because there is no GPU."""
        if self.file is None or self.node is None:
            return False
        return _ends(self.node, False, self.file, self.frame, set(), self.demands)

    def _parent(self, node: ast.AST | None) -> ast.AST | None:
        return self.file.parents.get(node) if self.file and node else None


class File:
    """The syntax tree of a file."""

    def __init__(self, text: str):
        self.nodes = list(ast.walk(parse_source(text)))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def says_nccl(self) -> bool:
        """True if the file names NCCL as its backend, and not by a condition about GPUs."""
        return any(
            isinstance(node, ast.Constant)
            and node.value in ("nccl", "NCCL")
            and not self._is_choice(node)
            for node in self.nodes
        )

    def _is_choice(self, node: ast.AST) -> bool:
        """True for a part of a condition, of a list of names, or of what a condition guards."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.Compare | ast.List | ast.Tuple | ast.Set | ast.Dict):
            return True
        while parent:
            if isinstance(parent, ast.If | ast.IfExp) and ABOUT_GPUS.search(
                ast.unparse(parent.test)
            ):
                return True
            parent = self.parents.get(parent)
        return False

    def at(self, frame: FrameType) -> ast.AST | None:
        """The call that a frame is in; None if it cannot be told, as with -X no_debug_ranges."""
        positions = frame.f_code.co_positions()
        place = next(itertools.islice(positions, frame.f_lasti // 2, None), None)
        if place is None or None in place:
            return None
        line, end_line, column, end_column = place
        for node in self.nodes:
            if (
                isinstance(node, ast.Call)
                and node.end_lineno == end_line
                and node.end_col_offset == end_column
                and (node.lineno, node.col_offset) <= (line, column)
            ):
                return node
        return None


@cache
def read(path: str) -> File | None:
    """The file as it ran, or as it is now; None if it is no Python."""
    try:
        return File("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _ends(
    node: ast.AST,
    value: bool,
    file: File,
    frame: Any,
    followed: set[ast.AST],
    demands: list[int],
) -> bool:
    """Whether the program ends if there is no GPU, and `node`, evaluated in `frame`, has `value`.

    `demands` gets the numbers that a count of GPUs is compared with on the way.
    """
    while node not in followed and len(followed) < MAX_FOLLOWED:
        followed.add(node)
        parent = file.parents.get(node)
        match parent:
            case ast.Assert():
                return not value
            case ast.If(test=test) | ast.While(test=test) if test is node:
                taken, other = (parent.body, parent.orelse)[:: 1 if value else -1]
                return _is_end(taken, other)
            case ast.Return():
                return _caller_ends(value, frame, followed, demands)
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                uses = _uses(parent, file)
                return any(_ends(use, value, file, frame, followed, demands) for use in uses)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                number = _number(right if left is node else left, frame)
                demands.append(number)
                sides = (0, number) if left is node else (number, 0)
                value = OPERATORS[type(op)](*sides) if type(op) in OPERATORS else value
                node = parent
            case ast.UnaryOp(op=ast.Not()):
                value, node = not value, parent
            case ast.BoolOp():
                node = parent
            case ast.Call(func=ast.Name(id="bool" | "int" | "any" | "all" | "min" | "max")):
                node = parent
            case _:
                return False
    return False


def _number(node: ast.expr, frame: Any) -> int:
    """What a constant, or a variable of the frame, holds; 0 if it is no number."""
    value: Any = getattr(node, "value", None)
    if isinstance(node, ast.Name):
        value = frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    return value if type(value) is int else 0


def _caller_ends(value: bool, frame: Any, followed: set[ast.AST], demands: list[int]) -> bool:
    """The same for what a function returns, in the function that has called it."""
    caller = frame.f_back
    if caller is None or not is_own(caller.f_code.co_filename):
        return False
    file = read(caller.f_code.co_filename)
    node = file.at(caller) if file else None
    if file is None or node is None:
        return False
    return _ends(node, value, file, caller, followed, demands)


def _uses(assignment: ast.AST, file: File) -> Iterator[ast.AST]:
    """Where the file reads the variables that an assignment writes, in any function."""
    targets = getattr(assignment, "targets", None) or [assignment.target]  # type: ignore[attr-defined]
    names = {_name(target) for target in targets} - {""}
    for node in file.nodes:
        if isinstance(getattr(node, "ctx", None), ast.Load) and _name(node) in names:
            yield node


def _needs_a_number(node: ast.AST, parent: ast.AST | None) -> bool:
    match parent:
        case ast.BinOp(op=op, right=right):
            return right is node and isinstance(op, DIVISIONS)
        case ast.keyword(arg=name):
            return name in PROCESSES
    return False


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _is_end(block: list[ast.stmt], other: list[ast.stmt]) -> bool:
    """True for statements that end the program: an error, an exit.

    So do those that only say something, if a `return` follows, or if all work is in the other
    branch.
    """
    match block[-1:]:
        case [ast.Raise()]:
            return True
        case [ast.Expr(value=ast.Call(func=function))] if _name(function) in EXITS:
            return True
        case [ast.Return(value=None)]:
            return _says_only(block)
        case [ast.Expr(value=ast.Call())]:
            return bool(other) and _says_only(block)
    return False


def _says_only(block: list[ast.stmt]) -> bool:
    """True for a block that does nothing but tell something."""
    calls = [s.value for s in block if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    rest = len(block) - len(calls) - isinstance(block[-1], ast.Return)
    return bool(calls) and not rest and all(_name(call.func) in PRINTS for call in calls)
