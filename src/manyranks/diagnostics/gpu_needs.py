"""Which expressions of a file need a GPU, and what to write instead.

What each call does without a GPU was seen on torch 2.13, in a build for the CPU.
"""

import ast
import operator
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from manyranks.diagnostics.source import DELETION, Edit, Source, Span, VisitedNodes, span_of

GUARD = "put it and what uses it under `if torch.cuda.is_available():`"
CLOCK = "measure with time.perf_counter()"
NO_GRAPH = "run the step without a CUDA graph"
CPU = '"cpu"'
CPU_DEVICE = 'torch.device("cpu")'
NO_STRING = '""'

# Calls that fail, and what to write for them: nothing, other code, another name, or a sentence.
DELETE = {
    *("torch.cuda." + name for name in ("set_device", "synchronize", "init", "ipc_collect")),
    *("torch.cuda." + name for name in ("reset_peak_memory_stats", "reset_max_memory_allocated")),
    "torch.cuda.set_per_process_memory_fraction",
    *("torch.cuda.nvtx." + name for name in ("range_push", "range_pop", "mark")),
    *("torch.cuda.profiler." + name for name in ("start", "stop")),
    *("torch.cuda.memory." + name for name in ("_record_memory_history", "_dump_snapshot")),
    *("torch.accelerator." + name for name in ("set_device_index", "synchronize", "empty_cache")),
    "torch.accelerator.reset_peak_memory_stats",
}
CODE = {
    "torch.cuda.current_device": CPU,
    "torch.cuda.get_device_name": CPU,
    "torch.cuda.get_device_capability": "(0, 0)",
    "torch.cuda.mem_get_info": "(0, 0)",
    "torch.cuda.memory_summary": NO_STRING,
    "torch.cuda.get_rng_state": "torch.get_rng_state()",
    "torch.cuda.initial_seed": "torch.initial_seed()",
    "torch.cuda.device": CPU_DEVICE,
    "torch.accelerator.memory_allocated": "0",
    "torch.accelerator.max_memory_allocated": "0",
    "torch.accelerator.current_device_index": "0",
}
NAMES = {
    "torch.cuda.Stream": "torch.cpu.Stream",
    "torch.cuda.stream": "torch.cpu.stream",
    "torch.cuda.current_stream": "torch.cpu.current_stream",
    "torch.cuda.nvtx.range": "torch.profiler.record_function",
}
WORDS = {
    **dict.fromkeys(("torch.cuda.get_device_properties", "torch.cuda.utilization"), GUARD),
    **dict.fromkeys(("torch.accelerator.current_stream", "torch.cuda.temperature"), GUARD),
    "torch.cuda.Event": CLOCK,
    **dict.fromkeys(("torch.cuda.CUDAGraph", "torch.cuda.make_graphed_callables"), NO_GRAPH),
}
ACCELERATOR = "torch.accelerator.current_accelerator"
AVAILABLE = {"torch.cuda.is_available", "torch.accelerator.is_available"}
COUNTS = {"torch.cuda.device_count", "torch.accelerator.device_count"}
QUESTIONS = {
    *(AVAILABLE | COUNTS | {ACCELERATOR}),
    "torch.cuda.is_bf16_supported",
    "torch.cuda.is_initialized",
    "torch.version.cuda",
    "torch.distributed.is_nccl_available",
    "torch.distributed.is_backend_available",
}
OPERATORS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
GROUPS = {"torch.distributed.init_process_group": 0, "torch.distributed.new_group": 2}  # backend
GPU = re.compile(r"cuda(:|$)")
# Variables that hold the number of a GPU, where the file does not show it.
GPU_NUMBER = re.compile(r"(local_|global_|ddp_)*rank|gpu(_?id|_?num|_?index)?|device_?(id|index)")
ABOUT_DEVICES = re.compile(r"(?i)cuda|gpu|accelerator|device|nvidia|nccl|built in|dummy base")
DEVICES = ("cuda", "cpu", "gpu", "nccl", "gloo")


@dataclass(frozen=True)
class Need:
    """An expression that cannot work here, with the edits that make it work.

    `says` must be found in the error, for a call that may also fail for other reasons.
    """

    node: ast.AST
    edits: tuple[Edit, ...]
    says: re.Pattern = re.compile("")


def gpu_needs(source: Source) -> list[Need]:
    """All that fails in this file without a GPU, except what the file itself guards."""
    finder = Finder(source)
    return [need for node in source.nodes for need in finder.needs(node)]


class Finder:
    """Finds the needs of one file."""

    def __init__(self, source: Source):
        self.source = source

    def needs(self, node: ast.AST) -> Iterator[Need]:
        """What this node alone needs, if no condition guards it."""
        if isinstance(node, ast.Raise | ast.Expr):
            yield from self._refusal(node)
        candidates = [self._outside_of_strings(need) for need in self._candidates(node)]
        guard = self.source.guard(node, self.asks_for_gpu) if candidates else None
        if guard is None:
            yield from candidates
        elif edits := tuple(self._choices_in(guard)):
            # `if device_type == "cuda":` leaves the choice to the line that set the variable.
            yield from (Need(need.node, edits, need.says) for need in candidates)

    def _outside_of_strings(self, need: Need) -> Need:
        """In an f-string code has other quotes, and before Python 3.12 no certain place."""
        around = need.node
        while not isinstance(around, ast.stmt | ast.JoinedStr | ast.comprehension):
            around = self.source.parents[around]
        if not isinstance(around, ast.JoinedStr) or around is need.node:
            return need
        string = span_of(around)
        by_hand = Edit(span_of(self.source.statement_of(around)), "", GUARD)
        inside = [string.start <= edit.span.start <= string.end for edit in need.edits]
        edits = [by_hand if i else e for e, i in zip(need.edits, inside, strict=True)]
        return Need(need.node, tuple(edits), need.says)

    def asks_for_gpu(self, node: ast.AST) -> bool:
        """True for a question whose answer depends on the GPUs, or on a choice of device."""
        for part in _operands(node):
            if isinstance(part, ast.Constant) and str(part.value).startswith(DEVICES):
                return True
        if isinstance(node, ast.Attribute) and node.attr == "is_cuda":
            return True
        name = self.source.qualified_name(node.func if isinstance(node, ast.Call) else node)
        return name in QUESTIONS

    def _choices_in(self, guard: ast.AST) -> Iterator[Edit]:
        for node in ast.walk(guard):
            for part in _operands(node) if self.asks_for_gpu(node) else ():
                if not isinstance(part, ast.Constant):
                    yield from self._choices(part, self._as_device)

    def _candidates(self, node: ast.AST) -> Iterator[Need]:
        match node:
            case ast.Call():
                yield from self._call(node)
            case ast.Attribute(value=of) if self._calls(of, {ACCELERATOR}) or any(
                self._calls(value, {ACCELERATOR}) for value in self.source.values(of)
            ):
                if edits := tuple(self._choices(of, self._as_device)):
                    yield Need(node, edits)
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), right=count) if self._is_count(count):
                yield Need(node, (Edit(span_of(count), f"max(1, {ast.unparse(count)})"),))
            case ast.Assert(test=test) if self._truth(test) is False:
                edits = (Edit(span_of(node), DELETION),)
                yield from (Need(part, edits) for part in (node, test))

    def _refusal(self, node: ast.Raise | ast.Expr) -> Iterator[Need]:
        """`if not torch.cuda.is_available(): raise …`, or `sys.exit(1)`."""
        fails = node if isinstance(node, ast.Raise) else node.value
        match self.source.parents[node]:
            case ast.If(test=test, body=body) if isinstance(
                node, ast.Raise
            ) or self.source.exits_with_a_code(fails):
                if self._truth(test) is (node in body):
                    yield Need(fails, (Edit(span_of(node), DELETION),))

    def _call(self, call: ast.Call) -> Iterator[Need]:
        name = self.source.qualified_name(call.func)
        if edit := self._from_table(call, name):
            own = name in WORDS or not name.startswith("torch.")
            yield Need(call, (edit,), ABOUT_DEVICES if own else re.compile(""))
        elif edits := tuple(self._arguments(call, name)):
            yield Need(call, edits, ABOUT_DEVICES)

    def _from_table(self, call: ast.Call, name: str) -> Edit | None:
        statement, whole = self.source.parents[call], span_of(call)
        alone = isinstance(statement, ast.Expr)
        if alone and (name in DELETE or name in CODE):
            return Edit(span_of(statement), DELETION)
        if name in DELETE or name in CODE:
            return Edit(whole, CODE.get(name, "None"))
        if name in NAMES:
            return Edit(span_of(call.func), NAMES[name])
        if name in WORDS:
            around = self.source.statement_of(call) if WORDS[name] == GUARD else call
            return Edit(span_of(around), "", WORDS[name])
        match call.func:
            case ast.Attribute(attr="convert_sync_batchnorm") if call.args:
                return Edit(whole, ast.unparse(call.args[0]))
            case ast.Attribute(attr="cuda") as method if not name.startswith("torch."):
                line, column = _end(method)
                return Edit(Span(line, column - len(method.attr), *_end(call)), "cpu()")
            case ast.Attribute(attr="pin_memory", value=tensor):
                return Edit(Span(*_end(tensor), *_end(call)), "")
        return None

    def _arguments(self, call: ast.Call, name: str) -> Iterator[Edit]:
        """The edits of arguments with which this call fails."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        is_torch, last = name.startswith("torch."), name.rpartition(".")[2]

        def argument(name: str, place: int = sys.maxsize) -> Iterator[ast.expr]:
            """The argument of this name or place, if the call has it."""
            if name in keywords:
                yield keywords[name]
            elif place < len(call.args) and not isinstance(call.args[place], ast.Starred):
                yield call.args[place]

        if name in GROUPS:
            for backend in argument("backend", GROUPS[name]):
                yield from self._choices(backend, self._as_backend)
            for device in argument("device_id"):  # only a GPU may be given
                if not any(_is_none(part) for part in ast.walk(self._only_value(device))):
                    yield Edit(span_of(device), "None")
        elif is_torch and last == "DistributedDataParallel":
            for ids in argument("device_ids", 1):
                if any(map(self._is_list, self._unguarded_values(ids))):
                    for value in (ids, *argument("output_device", 2)):
                        yield Edit(span_of(value), "None")
        elif is_torch and last == "FullyShardedDataParallel":  # runs on a CPU if it is told so
            for device in argument("device_id"):
                if any(True for _ in self._devices(device)):
                    yield Edit(span_of(device), CPU_DEVICE)
            if not {"device_id", None} & keywords.keys():
                line, column = _end(call)
                yield Edit(Span(line, column - 1, line, column), f", device_id={CPU_DEVICE})")
        elif is_torch and last in ("init_device_mesh", "DeviceMesh"):
            for kind in argument("device_type", 0):
                yield from self._choices(kind, self._as_device)
        elif name == "torch.device":
            # It fails by itself only with a number, or with a device that is made of None.
            if call.args and self.source.mentions(
                call.args[0], lambda node: self._calls(node, {ACCELERATOR})
            ):
                yield from self._choices(call.args[0], self._as_device)
            elif len(call.args) == 1 and self._is_number(call.args[0]):
                yield Edit(span_of(call), CPU_DEVICE)
        elif name == "torch.load":
            for where in argument("map_location", 1):
                yield from self._devices(where)
        elif name in ("torch.set_default_device", "torch.Generator") or method == "to":
            for device in argument("device", 0):
                yield from self._devices(device)
        elif "device" in keywords and (
            is_torch or method.startswith("new_") or method == "to_empty"
        ):
            yield from self._devices(keywords["device"])
        pin_memory = keywords.get("pin_memory")
        if (
            isinstance(pin_memory, ast.Constant)
            and pin_memory.value
            and is_torch
            and last != "DataLoader"
        ):
            yield Edit(span_of(pin_memory), "False")  # a DataLoader only warns

    def _only_value(self, node: ast.expr) -> ast.expr:
        values = self.source.values(node)
        return values[0] if len(values) == 1 else node

    def _unguarded_values(self, node: ast.expr) -> Iterator[ast.expr]:
        for value in self.source.values(node) or [node]:
            if self.source.guard(value, self.asks_for_gpu) is None:
                yield value

    def _is_list(self, value: ast.expr) -> bool:
        return isinstance(value, ast.List | ast.ListComp | ast.Tuple) or self._calls(
            value, {"list"}
        )

    # Where the file chooses a device or a backend

    def _choices(
        self,
        node: ast.expr,
        replace: Callable[[ast.expr], str],
        visited: VisitedNodes | None = None,
    ) -> Iterator[Edit]:
        """Where `node` gets a value that needs a GPU, without a condition; `mend` replaces it."""
        visited = visited or VisitedNodes()
        if visited.ends_at(node) or self.source.guard(node, self.asks_for_gpu) is not None:
            return
        if new := replace(node):
            yield Edit(span_of(node), new)
            return
        parts: list[Any] = []
        match node:
            case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
                parts = [first]
            case ast.Call(func=function, args=[first, *_]):
                if self.source.qualified_name(function) in ("str", "torch.device"):
                    parts = [first]
            case ast.BoolOp(values=parts) | ast.Dict(values=parts):
                pass
            case ast.IfExp(body=body, orelse=other):
                parts = [body, other]
            case ast.Attribute(value=of, attr="type" | "index") if not self.source.values(node):
                parts = [of]
            case ast.Name() | ast.Attribute():
                parts = self.source.values(node)
        for part in parts:
            yield from self._choices(part, replace, visited)

    def _devices(self, device: ast.expr) -> Iterator[Edit]:
        """The edits that make this argument a device that is here."""
        edits = list(self._choices(device, self._as_device))
        if not edits and self._is_number(device):
            edits = [Edit(span_of(device), CPU)]
        yield from edits

    def _as_device(self, node: ast.expr) -> str:
        """What to write for an expression that is a GPU; "" for any other."""
        match node:
            case (
                ast.Constant(value=str(text))
                | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
                | ast.BinOp(left=ast.Constant(value=str(text)))
                | ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format"))
            ):
                return CPU if GPU.match(text) else ""
            case ast.Call(args=[first, *_]) if self._calls(node, {"torch.device"}):
                by_name = isinstance(first, ast.Name | ast.Attribute)
                is_gpu = self._is_number(first) or (not by_name and self._as_device(first))
                return CPU_DEVICE if is_gpu else ""
        if self._calls(node, {"torch.cuda.current_device"}):
            return CPU
        return CPU_DEVICE if self._calls(node, {ACCELERATOR}) else ""

    def _as_backend(self, node: ast.expr) -> str:
        """The same for a backend that moves data between GPUs."""
        match node:
            case ast.Constant(value=str(text)) if "nccl" in text.lower():
                return self.source.quoted(node, "gloo")
            case ast.Attribute(attr="NCCL"):
                return '"gloo"'
        return ""

    def _is_number(self, node: ast.expr, visited: VisitedNodes | None = None) -> bool:
        """True for the number of a GPU: an integer, or a variable called like one."""
        visited = visited or VisitedNodes()
        if visited.ends_at(node):
            return False
        match node:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.BinOp(left=left, op=ast.Mod() | ast.Add() | ast.Mult() | ast.Sub()):
                return self._is_number(left, visited)
            case ast.Call():
                return self._calls(node, {"int", "torch.distributed.get_rank"})
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return GPU_NUMBER.fullmatch(key.lower()) is not None
            case ast.Name() | ast.Attribute():
                if self.source.qualified_name(node).startswith("torch."):
                    return False  # torch.float64
                if values := self.source.values(node):
                    return any(self._is_number(value, visited) for value in values)
                name = getattr(node, "attr", getattr(node, "id", ""))
                return GPU_NUMBER.fullmatch(name.lower()) is not None
        return False

    # What is known without a GPU

    def _calls(self, node: ast.AST, names: set[str]) -> bool:
        return isinstance(node, ast.Call) and self.source.qualified_name(node.func) in names

    def _is_count(self, node: ast.expr) -> bool:
        return any(self._calls(part, COUNTS) for part in (node, *self.source.values(node)))

    def _truth(self, test: ast.expr, visited: VisitedNodes | None = None) -> bool | None:
        """Whether a condition holds if there is no GPU; None if that depends on anything else."""
        visited = visited or VisitedNodes()
        if visited.ends_at(test):
            return None
        match test:
            case ast.Call() if self._calls(test, AVAILABLE | COUNTS):
                return False
            case ast.UnaryOp(op=ast.Not(), operand=part):
                truth = self._truth(part, visited)
                return None if truth is None else not truth
            case ast.BoolOp(op=op, values=parts):
                values = [self._truth(part, visited) for part in parts]
                decides = isinstance(op, ast.Or)
                if decides in values:
                    return decides
                return None if None in values else not decides
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
                if self._is_count(left) or self._is_count(right):
                    return OPERATORS[type(op)](self._number(left), self._number(right))
            case ast.Name() | ast.Attribute():
                truths = {self._truth(value, visited) for value in self.source.values(test)}
                return truths.pop() if len(truths) == 1 else None
        return None

    def _number(self, node: ast.expr) -> int:
        """A side of a comparison with how many GPUs there are; an unknown number is above 0."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        return 0 if self._is_count(node) else 1


def _operands(node: ast.AST) -> list[ast.expr]:
    """What `device == "cuda"`, `"cuda" in device` or `device.startswith("cuda")` compare."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=ast.Attribute(value=text, attr="startswith"), args=[start]):
            return [text, start]
    return []


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _end(node: ast.AST) -> tuple[int, int]:
    return span_of(node).end
