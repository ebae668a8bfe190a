"""A reader's file as a tree: what a name holds, what guards an expression, what stands where.

A file is read only after a launch has failed. Names are followed within one file, without running
it, so an answer may be incomplete.
"""

import ast
import importlib.util
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from manyranks.diagnostics.parsing import parse_source
from manyranks.diagnostics.user_code import is_own

MAX_FILE_BYTES = 200_000  # bytes of a file that is read
MAX_PLACES = 20  # frames kept of an error
MAX_VALUES = 20  # assignments to one name; what it holds after more of them is not known
MAX_VISITS = 100  # expressions followed to find what a name holds
CELL_NAMES = {"dist": "torch.distributed"}  # a %%ranks cell has this name without an import
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
DELETION = "pass"  # what an edit leaves of a statement that goes; a block must not be empty
EXITS = {"exit", "quit", "sys.exit", "os._exit"}

Question = Callable[[ast.AST], bool]


@dataclass(frozen=True)
class Span:
    """A part of a file, as the compiler counts: lines from 1, columns in bytes of UTF-8."""

    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def start(self) -> tuple[int, int]:
        return self.line, self.column

    @property
    def end(self) -> tuple[int, int]:
        return self.end_line, self.end_column


@dataclass(frozen=True)
class Place:
    """What a frame was running when an error passed it."""

    file: str
    span: Span


@dataclass(frozen=True)
class Edit:
    """A change of a file: `new` replaces the span. `words` say what to do where no code can."""

    span: Span
    new: str
    words: str = ""


# In a rank


def places(errors: Sequence[BaseException]) -> list[Place]:
    """Where the reader's own frames of these errors stood, innermost first."""
    own_places = []
    for error in errors:
        frames, traceback = [], error.__traceback__
        while traceback is not None:
            frames.append((traceback.tb_frame.f_code, traceback.tb_lasti))
            traceback = traceback.tb_next
        own = [frame for frame in frames if is_own(frame[0].co_filename)]
        for code, instruction in own[: -MAX_PLACES - 1 : -1]:
            # Each of the four numbers is None under python -X no_debug_ranges.
            positions: Any = next(itertools.islice(code.co_positions(), instruction // 2, None))
            line, end_line, column, end = positions
            if None not in positions:
                own_places.append(Place(code.co_filename, Span(line, column, end_line, end)))
    return own_places[:MAX_PLACES]


# In the process that launched it


def read(file: str) -> "Source | None":
    """The file as a tree; None if it cannot be read."""
    try:
        if os.path.getsize(file) > MAX_FILE_BYTES:
            return None
        with open(file, "rb") as stream:
            return Source(importlib.util.decode_source(stream.read()))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


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


class VisitedNodes:
    """The expressions that a search has followed, to end loops such as `x = x + 1`."""

    def __init__(self) -> None:
        self.nodes: set[ast.AST] = set()

    def ends_at(self, node: ast.AST) -> bool:
        """True for an expression that was followed before, and after too many."""
        ends = node in self.nodes or len(self.nodes) > MAX_VISITS
        self.nodes.add(node)
        return ends


class Source:
    """One file of the reader's."""

    def __init__(self, text: str):
        self.text, self.tree = text, parse_source(text)
        self.nodes = list(ast.walk(self.tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.functions = {n.name: n for n in self.nodes if isinstance(n, ast.FunctionDef)}
        self.functions |= {
            n.name: method
            for n in self.nodes
            if isinstance(n, ast.ClassDef)
            for method in n.body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        }
        self.names: dict[ast.AST, set[str]] = {}
        self.guards: dict[tuple, ast.AST | None] = {}
        self.imports = CELL_NAMES | dict(_imports(self.nodes))
        self.assignments: dict[tuple, list[ast.expr]] = defaultdict(list)
        for target, value in _bindings(self):
            self.assignments[self._key(target)].append(value)

    def neighbours(self, file: str) -> list[str]:
        """The files beside `file` that it imports."""
        modules = [module for node in self.nodes for module in _modules(node)]
        paths = [os.path.join(os.path.dirname(file), *name.split(".")) for name in modules]
        return [path + ".py" for path in dict.fromkeys(paths) if os.path.isfile(path + ".py")]

    def at(self, span: Span) -> list[ast.AST]:
        """The nodes whose instruction has this span."""
        return [node for node in self.nodes if span in _spans_of_instructions(node)]

    def statement_of(self, node: ast.AST) -> ast.AST:
        """The statement that the node is, or is a part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def quoted(self, old: ast.expr, new: str) -> str:
        """`new` in the quotes of the string that it replaces, which may stand in an f-string."""
        line = self.text.split("\n")[old.lineno - 1].encode()
        quote = line[old.col_offset : old.col_offset + 1].decode()
        return f"{quote}{new}{quote}" if quote in ("'", '"') else f'"{new}"'

    # What a name means

    def qualified_name(self, node: ast.AST) -> str:
        """ "torch.cuda.set_device" for an expression that means it, however it was imported."""
        match node:
            case ast.Name(id=name):
                return self.imports.get(name, name)
            case ast.Attribute(value=of, attr=name):
                start = self.qualified_name(of)
                return f"{start}.{name}" if start else ""
        return ""

    def values(self, node: ast.AST) -> list[ast.expr]:
        """What this file assigns to a name or an attribute; parameters hold what calls pass."""
        values = self.assignments.get(self._key(node), [])
        return values if len(values) <= MAX_VALUES else []

    def _key(self, node: ast.AST) -> tuple:
        """One key for all uses of a variable; attributes of one name are taken for one."""
        match node:
            case ast.Attribute(attr=name):
                return "attribute", name
            case ast.Name(id=name) | ast.arg(arg=name):
                return self._scope(node, name), name
        return None, ""

    def _scope(self, node: ast.AST, name: str) -> ast.AST:
        """The innermost function around `node` that assigns `name`, else the module."""
        around = self.parents.get(node)
        while around and not (isinstance(around, SCOPES) and name in self._names_of(around)):
            around = self.parents.get(around)
        return around or self.tree

    def _names_of(self, scope: ast.AST) -> set[str]:
        if scope not in self.names:
            self.names[scope] = set(_names(scope))
        return self.names[scope]

    def asks(self, test: ast.AST, question: Question, visited: VisitedNodes | None = None) -> bool:
        """True for a condition that asks this question, itself or by a variable that holds it."""
        visited = visited or VisitedNodes()
        if visited.ends_at(test):
            return False
        match test:
            case _ if question(test):
                return True
            case ast.BoolOp(values=parts):
                pass
            case ast.UnaryOp(operand=one) | ast.NamedExpr(value=one) | ast.IfExp(test=one):
                parts = [one]
            case ast.Compare(left=left, comparators=others):
                parts = [left, *others]
            case ast.Name() | ast.Attribute():
                parts = self.values(test)
            case ast.Call(func=ast.Name(id="bool" | "any" | "all"), args=parts):
                pass
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                body = ast.walk(self.functions[name])
                parts = [n.value for n in body if isinstance(n, ast.Return) and n.value]
            case _:
                parts = []
        return any(self.asks(part, question, visited) for part in parts)

    def exits_with_a_code(self, node: ast.AST) -> bool:
        """True for `sys.exit(1)`, which is a failure; `sys.exit()` and `sys.exit(0)` are none."""
        match node:
            case ast.Call(func=name, args=[code]) if self.qualified_name(name) in EXITS:
                return not (isinstance(code, ast.Constant) and code.value in (0, None))
        return False

    def guard(self, node: ast.AST, question: Question) -> ast.AST | None:
        """The condition around `node` that asks this question; for a `try`, the `try`."""
        key = (node, question)
        if key not in self.guards:
            self.guards[key] = self._guard(node, question)
        return self.guards[key]

    def _guard(self, node: ast.AST, question: Question) -> ast.AST | None:
        while parent := self.parents.get(node):
            match parent:
                case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                    if node is not test and self.asks(test, question):
                        return test
                case ast.BoolOp(values=parts):
                    place = [part is node for part in parts].index(True)
                    if any(self.asks(part, question) for part in parts[:place]):
                        return parent
                case ast.For(iter=of) if node is not of and self.mentions(of, question):
                    return parent  # for i in range(torch.cuda.device_count())
                case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                    iterables = [generator.iter for generator in parent.generators]
                    if any(self.mentions(of, question) for of in iterables):
                        return parent
                case ast.Try(body=body) if node in body and _catches(self, parent):
                    return parent
            for before in _statements_before(parent, node):
                if (
                    isinstance(before, ast.If)
                    and _ends(self, before.body[-1])
                    and self.asks(before.test, question)
                ):
                    return before.test
            node = parent
        return None

    def mentions(self, node: ast.AST, question: Question) -> ast.AST | None:
        """The part of the expression that asks this question, perhaps in a variable."""
        pending, visited = [node], VisitedNodes()
        while pending:
            part = pending.pop()
            if question(part):
                return part
            if not visited.ends_at(part):
                pending += [*ast.iter_child_nodes(part), *self.values(part)]
        return None


def span_of(node: ast.AST) -> Span:
    """Where a node of a parsed file stands; AttributeError for one without a place, such as Add."""
    place: Any = node
    return Span(place.lineno, place.col_offset, place.end_lineno, place.end_col_offset)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """`text` after these edits; lines that an edit joins are not counted again."""
    lines = [line.encode() for line in text.split("\n")]
    for edit in sorted(edits, key=lambda e: (e.span.line, e.span.column), reverse=True):
        span = edit.span
        head = lines[span.line - 1][: span.column]
        tail = lines[span.end_line - 1][span.end_column :]
        lines[span.line - 1 : span.end_line] = [head + edit.new.encode() + tail]
    return b"\n".join(lines).decode()


def _spans_of_instructions(node: ast.AST) -> Iterator[Span]:
    """A node's span; for `a.b` and `a.b()` on several lines, instructions begin at `b`."""
    if not hasattr(node, "end_lineno"):
        return
    yield span_of(node)
    name = node.func if isinstance(node, ast.Call) else node
    if isinstance(name, ast.Attribute):
        whole, end = span_of(node), span_of(name)
        start = end.end_column - len(name.attr.encode())
        yield Span(end.end_line, start, whole.end_line, whole.end_column)


def _imports(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield (
                        (alias.asname, alias.name)
                        if alias.asname
                        else (alias.name.split(".")[0],) * 2
                    )
            case ast.ImportFrom(module=module, names=names, level=0):
                for alias in names:
                    yield alias.asname or alias.name, f"{module}.{alias.name}"


def _modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0 | 1):
            return [module]
    return []


def _bindings(source: Source) -> Iterator[tuple[ast.AST, ast.expr]]:
    """(name or attribute, value) for all that the file binds."""
    for node in source.nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _pairs(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _pairs(target, value)
            case ast.NamedExpr(target=target, value=value):
                yield target, value
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from _pairs(target, value)
            case ast.FunctionDef(args=parameters):
                yield from _defaults(parameters)
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=words, keywords=keywords):
                yield from _option(
                    words, {statement.arg: statement.value for statement in keywords}
                )
            case ast.Call(func=ast.Name(id=name)) if name in source.functions:
                yield from _arguments(source.functions[name], node)
            case ast.ClassDef(body=body):
                for statement in body:
                    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
                        targets = (
                            statement.targets
                            if isinstance(statement, ast.Assign)
                            else [statement.target]
                        )
                        names = [target.id for target in targets if isinstance(target, ast.Name)]
                        yield from (
                            (ast.Attribute(statement.value, name), statement.value)
                            for name in names
                        )


def _pairs(target: ast.AST, value: ast.expr) -> Iterator[tuple[ast.AST, ast.expr]]:
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for part, part_value in zip(targets, values, strict=True):
                yield from _pairs(part, part_value)
        case ast.Name() | ast.Attribute(), _:
            yield target, value


def _defaults(parameters: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    by_place = [*parameters.posonlyargs, *parameters.args]
    yield from zip(reversed(by_place), reversed(parameters.defaults), strict=False)
    for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if default is not None:
            yield parameter, default


def _arguments(function: ast.FunctionDef, call: ast.Call) -> Iterator[tuple[ast.arg, ast.expr]]:
    parameters = [*function.args.posonlyargs, *function.args.args]
    parameters = parameters[function.name == "__init__" :]
    if not any(isinstance(parameter, ast.Starred) for parameter in call.args):
        yield from zip(parameters, call.args, strict=False)
    by_name = {parameter.arg: parameter for parameter in (*parameters, *function.args.kwonlyargs)}
    yield from ((by_name[k.arg], k.value) for k in call.keywords if k.arg in by_name)


def _option(
    words: Sequence[ast.expr], keywords: dict[str | None, ast.expr]
) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """What argparse puts into `args.name` for an option that the command line leaves out."""
    flags = [word.value for word in words if isinstance(word, ast.Constant)]
    match keywords.get("dest"):
        case ast.Constant(value=str(name)):
            flags = [name]
    long = [str(flag) for flag in flags if not str(flag).startswith("-") or "--" in str(flag)]
    if long and "default" in keywords:
        name = long[0].lstrip("-").replace("-", "_")
        yield ast.Attribute(keywords["default"], name), keywords["default"]


def _names(scope: ast.AST) -> Iterator[str]:
    """The names that a function or the module binds itself."""
    parameters = getattr(scope, "args", None)
    outer: set[str] = set()
    pending = [*ast.iter_child_nodes(scope)]
    names_bound = (
        [parameter.arg for parameter in ast.walk(parameters) if isinstance(parameter, ast.arg)]
        if parameters
        else []
    )
    while pending:
        node = pending.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names_bound.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                outer.update(names)
        if not isinstance(node, (*SCOPES, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)
    return (name for name in names_bound if name not in outer)


def _catches(source: Source, tried: ast.Try) -> bool:
    """True for a `try` that catches: some `except` neither raises nor ends the program."""
    return any(
        not any(_ends(source, node, returns=False) for node in ast.walk(handler))
        for handler in tried.handlers
    )


def _ends(source: Source, node: ast.AST, returns: bool = True) -> bool:
    """True for a statement after which the next one does not run; a failure ends all at once."""
    match node:
        case ast.Return() | ast.Continue():
            return returns
        case ast.Raise():
            return not returns
        case ast.Expr(value=ast.Call(func=name) as call) if source.qualified_name(name) in EXITS:
            return not (returns and source.exits_with_a_code(call))
    return False


def _statements_before(parent: ast.AST, node: ast.AST) -> list[ast.stmt]:
    """The statements before `node` in its block."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and node in block:
            return block[: block.index(node)]
    return []
