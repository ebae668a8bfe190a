"""Which expressions of a file need a GPU, and what to write instead.

What each call does without a GPU was seen on torch 2.13, in a build for the CPU.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ddp_workbook.diagnostics.source import DELETED, Edit, Source, Span, Trail, span_of

GUARD = "put it and what uses it under `if torch.cuda.is_available():`"
CLOCK = "measure with time.perf_counter()"
NO_GRAPH = "run the step without a CUDA graph"
CPU = '"cpu"'
CPU_DEVICE = 'torch.device("cpu")'

# Calls that fail, with what to write for them: code for the whole call, or for its name.
DELETE = {
    *("torch.cuda." + name for name in ("set_device", "synchronize", "init", "ipc_collect")),
    *("torch.cuda." + name for name in ("reset_peak_memory_stats", "reset_max_memory_allocated")),
    *("torch.cuda." + name for name in ("set_per_process_memory_fraction", "CUDAGraph", "Event")),
    *("torch.cuda.nvtx." + name for name in ("range_push", "range_pop", "mark")),
    *("torch.cuda.profiler." + name for name in ("start", "stop")),
    *("torch.cuda.memory." + name for name in ("_record_memory_history", "_dump_snapshot")),
    *("torch.accelerator." + name for name in ("set_device_index", "set_device_idx")),
    *("torch.accelerator." + name for name in ("synchronize", "empty_cache")),
    *("torch.accelerator." + name for name in ("reset_peak_memory_stats",)),
    *("torch.xpu." + name for name in ("set_device", "synchronize")),
}
MADE_AND_USED = {"torch.cuda.Event", "torch.cuda.CUDAGraph"}
CALLS = {
    "torch.cuda.current_device": CPU,
    "torch.cuda.get_device_name": CPU,
    "torch.cuda.get_device_capability": "(0, 0)",
    "torch.cuda.mem_get_info": "(0, 0)",
    "torch.cuda.memory_summary": '""',
    "torch.cuda.memory_snapshot": "[]",
    "torch.cuda.nccl.version": "(0, 0)",
    "torch.cuda.get_rng_state": "torch.get_rng_state()",
    "torch.cuda.initial_seed": "torch.initial_seed()",
    "torch.cuda.device": CPU_DEVICE,
    "torch.accelerator.memory_allocated": "0",
    "torch.accelerator.memory_reserved": "0",
    "torch.accelerator.max_memory_allocated": "0",
    "torch.accelerator.max_memory_reserved": "0",
    "torch.accelerator.current_device_index": "0",
}
NAMES = {
    "torch.cuda.Stream": "torch.cpu.Stream",
    "torch.cuda.stream": "torch.cpu.stream",
    "torch.cuda.current_stream": "torch.cpu.current_stream",
    "torch.cuda.default_stream": "torch.cpu.current_stream",
    "torch.cuda.nvtx.range": "torch.profiler.record_function",
}
TENSOR_TYPES = {
    f"torch.cuda.{kind}Tensor": f"torch.{kind}Tensor"
    for kind in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Bool", "Byte")
}
NAMES |= TENSOR_TYPES
WORDS = {
    "torch.cuda.get_device_properties": GUARD,
    "torch.cuda.utilization": GUARD,
    "torch.cuda.temperature": GUARD,
    "torch.cuda.cudart": GUARD,
    "torch.accelerator.get_memory_info": GUARD,
    "torch.accelerator.current_stream": GUARD,
    "torch.cuda.graph": NO_GRAPH,
    "torch.cuda.make_graphed_callables": NO_GRAPH,
}
OF_EVENTS = {"record", "wait", "query", "synchronize"}
OF_GRAPHS = {"reset", "capture_begin", "capture_end"}
OF_STREAMS = {"synchronize", "query"}
QUESTIONS = {
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.cuda.is_bf16_supported",
    "torch.cuda.is_initialized",
    "torch.version.cuda",
    "torch.accelerator.is_available",
    "torch.accelerator.device_count",
    "torch.accelerator.current_accelerator",
    "torch.distributed.is_nccl_available",
    "torch.distributed.is_backend_available",
    "torch.xpu.is_available",
}
AVAILABLE = {one for one in QUESTIONS if one.endswith(".is_available")}
COUNTS = {"torch.cuda.device_count", "torch.accelerator.device_count"}
VISIBLE = "CUDA_VISIBLE_DEVICES"
ACCELERATOR = "torch.accelerator.current_accelerator"
MAKES_GROUP = {"torch.distributed.init_process_group", "torch.distributed.new_group"}
MAKES_MESH = {"init_device_mesh", "DeviceMesh"}
BACKENDS = re.compile(r"nccl|xccl")
GPU = re.compile(r"(cuda|xpu)(:|$)")
# Variables that hold the number of a GPU, where the file does not show it.
NUMBERS = re.compile(r"(local_|global_|ddp_)*rank|gpu(_?id|_?num|_?index)?|device_?(id|index)")
ABOUT_DEVICES = re.compile(r"(?i)cuda|gpu|accelerator|device|nvidia|xpu|nccl|xccl|built in")


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
    found = Finder(source)
    return [need for node in source.nodes for need in found.needs(node)]


class Finder:
    """Finds the needs of one file."""

    def __init__(self, source: Source):
        self.source = source

    def needs(self, node: ast.AST) -> Iterator[Need]:
        """What this node alone needs, if no condition guards it."""
        if isinstance(node, ast.Raise):
            yield from self._refusal(node, node)
            return
        if isinstance(node, ast.Expr) and self.source.exits_with_a_code(node.value):
            yield from self._refusal(node, node.value)
            return
        found = [self._outside_of_strings(need) for need in self._unguarded(node)]
        guard = self.source.guard(node, self.asks_for_gpu) if found else None
        if guard is None:
            yield from found
        elif edits := tuple(self._chosen_in(guard)):
            # `if device_type == "cuda":` leaves the choice to the line that set the variable.
            yield from (Need(need.node, edits, need.says) for need in found)

    def _outside_of_strings(self, need: Need) -> Need:
        """In an f-string code has other quotes, and before Python 3.12 no certain place."""
        around = need.node
        while not isinstance(around, ast.stmt | ast.JoinedStr | ast.comprehension):
            around = self.source.parents[around]
        if not isinstance(around, ast.JoinedStr) or around is need.node:
            return need
        string, statement = span_of(around), span_of(_statement_of(self.source, around))
        edits = [
            Edit(statement, "", edit.words or GUARD)
            if string.start <= edit.span.start <= string.end
            else edit
            for edit in need.edits
        ]
        return Need(need.node, tuple(edits), need.says)

    def asks_for_gpu(self, node: ast.AST) -> bool:
        """True for a question whose answer depends on the GPUs, or on a choice of device."""
        if any(isinstance(p, ast.Constant) and _names_a_device(p.value) for p in _compared(node)):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "is_cuda":
            return True
        name = node.func if isinstance(node, ast.Call) else node
        return self.source.dotted(name) in QUESTIONS

    def _chosen_in(self, guard: ast.AST) -> Iterator[Edit]:
        for node in ast.walk(guard):
            if self.asks_for_gpu(node):
                for part in _compared(node):
                    yield from self._choices(part) if not isinstance(part, ast.Constant) else ()

    def _unguarded(self, node: ast.AST) -> Iterator[Need]:
        match node:
            case ast.Call():
                yield from self._call(node)
            case ast.Attribute(value=of) if self._is_accelerator(of):
                if edits := tuple(self._choices(of)):
                    yield Need(node, edits)
            case ast.BinOp(op=ast.Mod() | ast.FloorDiv() | ast.Div(), right=count):
                yield from self._division(node, count)
            case ast.AugAssign(op=ast.Mod() | ast.FloorDiv() | ast.Div(), value=count):
                yield from self._division(node, count)
            case ast.Attribute() if self.source.dotted(node) in TENSOR_TYPES:
                around = self.source.parents[node]
                if not (isinstance(around, ast.Call) and around.func is node):
                    yield Need(around, (Edit(span_of(node), NAMES[self.source.dotted(node)]),))
            case ast.Assert(test=test) if self._is_false(test):
                edits = (Edit(span_of(node), DELETED),)
                yield from (Need(one, edits) for one in (node, test))

    def _refusal(self, node: ast.stmt, fails: ast.AST) -> Iterator[Need]:
        """`if not torch.cuda.is_available(): raise …`, or `sys.exit(1)`."""
        match self.source.parents[node]:
            case ast.If(test=test, body=body) if (
                self._is_true(test) if node in body else self._is_false(test)
            ):
                yield Need(fails, (Edit(span_of(node), DELETED),))

    # Calls

    def _call(self, call: ast.Call) -> Iterator[Need]:
        name = self.source.dotted(call.func)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if edit := self._from_table(call, name):
            own = name in WORDS or not name.startswith("torch.")
            yield Need(call, (edit,), ABOUT_DEVICES if own else re.compile(""))
            yield from self._first_of_none(call, edit)
            return
        if name == "int" and call.args and (key := self._visible_devices(call.args[0])):
            yield Need(call, (Edit(span_of(key), self.source.quoted(key, "LOCAL_RANK")),))
            return
        edits = [*self._arguments(call, name, method)]
        if edits:
            yield Need(call, tuple(edits), ABOUT_DEVICES)
            yield from self._first_of_none(call, *edits)

    def _first_of_none(self, call: ast.Call, *edits: Edit) -> Iterator[Need]:
        """`.cuda(gpus[0])` with a list of all GPUs, which is empty."""
        for part in ast.walk(call):
            if isinstance(part, ast.Subscript) and self.source.mentions(part, self._is_count):
                yield Need(part, edits)

    def _visible_devices(self, text: ast.expr) -> ast.Constant | None:
        """The key with which this number was read; the variable is "" if no GPU is there."""

        def is_key(node: ast.AST) -> bool:
            if not isinstance(node, ast.Constant) or node.value != VISIBLE:
                return False
            match self.source.parents.get(node):
                case ast.Subscript(value=of) | ast.Call(func=ast.Attribute(value=of)):
                    return self.source.dotted(of) in ("os.environ", "os")
            return False

        key = self.source.mentions(text, is_key)
        return key if isinstance(key, ast.Constant) else None

    def _from_table(self, call: ast.Call, name: str) -> Edit | None:
        statement = self.source.parents[call]
        whole, own_name = span_of(call), span_of(call.func)
        alone = isinstance(statement, ast.Expr)
        if name in DELETE:
            return self._delete(call, name in MADE_AND_USED)
        if name in CALLS:
            return Edit(span_of(statement), DELETED) if alone else Edit(whole, CALLS[name])
        if name in NAMES:
            return Edit(own_name, NAMES[name])
        if name in WORDS:
            around = _statement_of(self.source, call) if WORDS[name] == GUARD else call
            return Edit(span_of(around), "", WORDS[name])
        match call.func:
            case ast.Attribute(attr="convert_sync_batchnorm") if call.args:
                return Edit(whole, ast.unparse(call.args[0]))
            case ast.Attribute(attr="cuda" | "xpu") as method if not name.startswith("torch."):
                return Edit(_method_span(call, method), "cpu()")
            case ast.Attribute(attr="pin_memory", value=tensor):
                return Edit(Span(*_end(tensor), *_end(call)), "")
            case ast.Attribute(value=of, attr=method):
                return self._of_cuda_object(call, of, method)
        return None

    def _of_cuda_object(self, call: ast.Call, of: ast.expr, method: str) -> Edit | None:
        made = {self.source.dotted(v.func) for v in self._held_calls(of)}
        if "torch.cuda.Event" in made and method == "elapsed_time":
            return Edit(span_of(call), "", CLOCK)
        if "torch.cuda.CUDAGraph" in made and method == "replay":
            return Edit(span_of(call), "", NO_GRAPH)
        stops = (
            ("torch.cuda.Event" in made and method in OF_EVENTS)
            or ("torch.cuda.CUDAGraph" in made and method in OF_GRAPHS)
            or (made & {"torch.cuda.Stream", "torch.cuda.current_stream"} and method in OF_STREAMS)
        )
        stops = stops or (method == "record_stream" and self._is_stream(call))
        return self._delete(call) if stops else None

    def _delete(self, call: ast.Call, with_its_name: bool = False) -> Edit:
        """The statement goes if it is only this call, or only gives it a name."""
        statement = _statement_of(self.source, call)
        alone = isinstance(statement, ast.Expr) and statement.value is call
        if alone or (with_its_name and isinstance(statement, ast.Assign)):
            return Edit(span_of(statement), DELETED)
        return Edit(span_of(call), "None")

    def _held_calls(self, node: ast.expr) -> Iterator[ast.Call]:
        """The calls that made what `node` holds, perhaps in a list."""
        name = node.value if isinstance(node, ast.Subscript) else node
        for value in (node, *self.source.values(name)):
            yield from (one for one in ast.walk(value) if isinstance(one, ast.Call))

    def _is_stream(self, call: ast.Call) -> bool:
        made = [self.source.dotted(v.func) for one in call.args for v in self._held_calls(one)]
        return any("tream" in name for name in made)

    def _arguments(self, call: ast.Call, name: str, method: str) -> Iterator[Edit]:
        """The edits of arguments with which this call fails."""
        named = {keyword.arg: keyword for keyword in call.keywords}
        last = name.rpartition(".")[2]
        is_torch = name.startswith("torch.")
        if name in MAKES_GROUP:
            place = 0 if last == "init_process_group" else 2
            for backend in _argument(call, named, "backend", place):
                yield from self._backends(backend)
            for device in _argument(call, named, "device_id"):
                yield from self._without_device_id(device)
        elif is_torch and last == "DistributedDataParallel":
            yield from self._without_ids(call, named)
        elif is_torch and last == "FullyShardedDataParallel":
            yield from self._sharded(call, named)
        elif is_torch and last in MAKES_MESH:
            for device in _argument(call, named, "device_type", 0):
                yield from self._choices(device)
        elif name == "torch.device":
            yield from self._made_device(call)
        elif name == "torch.load":
            for where in _argument(call, named, "map_location", 1):
                yield from self._map_locations(where)
        elif name in ("torch.set_default_device", "torch.Generator") or method == "to":
            for device in _argument(call, named, "device", 0):
                yield from self._devices(device)
        elif name == "torch.set_default_tensor_type" or method == "type":
            for kind in _argument(call, named, "t" if is_torch else "dtype", 0):
                yield from self._tensor_types(kind)
        elif "device" in named and (is_torch or method.startswith("new_") or method == "to_empty"):
            yield from self._devices(named["device"].value)
        match named.get("pin_memory"):
            case ast.keyword(value=ast.Constant(value=True) as pinned) if is_torch:
                if last != "DataLoader":  # which only warns
                    yield Edit(span_of(pinned), "False")

    def _tensor_types(self, kind: ast.expr) -> Iterator[Edit]:
        """ "torch.cuda.FloatTensor", perhaps in a variable."""
        for text in (kind, *self.source.values(kind)):
            if isinstance(text, ast.Constant) and text.value in TENSOR_TYPES:
                new = self.source.quoted(text, TENSOR_TYPES[text.value])
                yield Edit(span_of(text), new)

    def _without_device_id(self, device: ast.expr) -> Iterator[Edit]:
        """Only a GPU may be given; torch.device("cpu") fails, too."""
        values = [device, *self.source.values(device)]
        is_none = any(
            isinstance(part, ast.Constant) and part.value is None
            for value in values
            for part in ast.iter_child_nodes(value)
        )
        chosen = any(True for _ in self._devices(device))
        if not is_none and (chosen or self.source.mentions(device, self._is_device)):
            yield Edit(span_of(device), "None")

    def _is_device(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.source.dotted(node.func) == "torch.device"

    def _without_ids(self, call: ast.Call, named: dict) -> Iterator[Edit]:
        for ids in _argument(call, named, "device_ids", 1):
            if any(self._is_list(value) for value in self._unguarded_values(ids)):
                yield Edit(span_of(ids), "None")
                for output in _argument(call, named, "output_device", 2):
                    yield Edit(span_of(output), "None")

    def _unguarded_values(self, node: ast.expr) -> Iterator[ast.expr]:
        for value in self.source.values(node) or [node]:
            if self.source.guard(value, self.asks_for_gpu) is None:
                yield value

    def _is_list(self, value: ast.expr) -> bool:
        is_list = isinstance(value, ast.Call) and self.source.dotted(value.func) == "list"
        return is_list or isinstance(value, ast.List | ast.ListComp | ast.Tuple)

    def _sharded(self, call: ast.Call, named: dict) -> Iterator[Edit]:
        """The older FSDP runs on a CPU if it is told so."""
        if "device_id" in named:
            value = named["device_id"].value
            if any(True for _ in self._devices(value)):
                yield Edit(span_of(value), CPU_DEVICE)
        elif not any(isinstance(one, ast.Starred) for one in call.args) and None not in named:
            line, column = _end(call)
            yield Edit(Span(line, column - 1, line, column), f", device_id={CPU_DEVICE})")

    # Devices

    def _devices(self, device: ast.expr) -> Iterator[Edit]:
        """The edits that make this argument a device that is here."""
        chosen = list(self._choices(device))
        if chosen:
            yield from chosen
        elif self._is_number(device):
            yield Edit(span_of(device), CPU)

    def _made_device(self, call: ast.Call) -> Iterator[Edit]:
        """`torch.device(rank)` fails at once, and so does a device that is made of None."""
        match call.args:
            case [number] if self._is_number(number):
                yield Edit(span_of(call), CPU_DEVICE)
            case [one, *_] if self.source.mentions(one, self._asks_for_accelerator):
                yield from self._choices(one)

    def _choices(self, node: ast.AST, trail: Trail | None = None) -> Iterator[Edit]:
        """Where this file chooses a GPU for the value of `node`, without a condition."""
        trail = trail or Trail()
        if trail.ends_at(node) or self.source.guard(node, self.asks_for_gpu) is not None:
            return
        match node:
            case ast.Constant(value=str(text)) if GPU.match(text):
                yield Edit(span_of(node), CPU)
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if GPU.match(text):
                yield Edit(span_of(node), CPU)
            case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
                yield from self._choices(first, trail)
            case ast.BinOp(left=ast.Constant(value=str(text))) if GPU.match(text):
                yield Edit(span_of(node), CPU)
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                if GPU.match(text):
                    yield Edit(span_of(node), CPU)
            case ast.Call(func=called, args=args):
                yield from self._chosen_by_call(node, self.source.dotted(called), args, trail)
            case ast.BoolOp(values=parts) | ast.Dict(values=parts):
                for part in parts:
                    yield from self._choices(part, trail)
            case ast.IfExp(body=body, orelse=other):
                yield from self._choices(body, trail)
                yield from self._choices(other, trail)
            case ast.Attribute(value=of, attr="type" | "index") if not self.source.values(node):
                yield from self._choices(of, trail)
            case ast.Name() | ast.Attribute():
                for value in self.source.values(node):
                    yield from self._choices(value, trail)

    def _chosen_by_call(
        self, call: ast.Call, name: str, args: list, trail: Trail
    ) -> Iterator[Edit]:
        if name == "torch.cuda.current_device":
            yield Edit(span_of(call), CPU)
        elif name == ACCELERATOR:
            yield Edit(span_of(call), CPU_DEVICE)
        elif name == "torch.device" and args:
            if isinstance(args[0], ast.Name | ast.Attribute) and not self._is_number(args[0]):
                yield from self._choices(args[0], trail)
            elif [*self._choices(args[0])] or self._is_number(args[0]):
                yield Edit(span_of(call), CPU_DEVICE)
        elif name == "str" and args:
            yield from self._choices(args[0], trail)

    def _map_locations(self, where: ast.expr) -> Iterator[Edit]:
        """A checkpoint that is loaded to a GPU; a dict maps what a GPU has saved."""
        for value in self._unguarded_values(where):
            if isinstance(value, ast.Dict) and [*self._choices(value)]:
                yield Edit(span_of(value), CPU)
            elif not isinstance(value, ast.Dict):
                yield from self._devices(value)

    def _backends(self, node: ast.expr, trail: Trail | None = None) -> Iterator[Edit]:
        """Where this file chooses a backend that moves data between GPUs."""
        trail = trail or Trail()
        if trail.ends_at(node) or self.source.guard(node, self.asks_for_gpu) is not None:
            return
        match node:
            case ast.Constant(value=str(text)) if BACKENDS.search(text.lower()):
                yield Edit(span_of(node), self.source.quoted(node, "gloo"))
            case ast.Attribute() if BACKENDS.fullmatch(node.attr.lower()):
                yield Edit(span_of(node), self.source.quoted(node, "gloo"))
            case ast.IfExp(body=body, orelse=other):
                for part in (body, other):
                    yield from self._backends(part, trail)
            case ast.Name() | ast.Attribute():
                for value in self.source.values(node):
                    yield from self._backends(value, trail)

    def _is_number(self, node: ast.expr, trail: Trail | None = None) -> bool:
        """True for the number of a GPU: an integer, or a variable called like one."""
        trail = trail or Trail()
        if trail.ends_at(node):
            return False
        match node:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.BinOp(left=left, op=ast.Mod() | ast.Add() | ast.Mult() | ast.Sub()):
                return self._is_number(left, trail)
            case ast.Call(func=called):
                return self.source.dotted(called) in ("int", "torch.distributed.get_rank")
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return NUMBERS.fullmatch(key.lower()) is not None
            case ast.Subscript(value=of):
                counted = self.source.mentions(of, self._is_count) is not None
                return counted or self._is_called(of, "s")
            case ast.Name() | ast.Attribute():
                if self.source.dotted(node).startswith("torch."):
                    return False  # torch.float64
                if values := self.source.values(node):
                    return any(self._is_number(value, trail) for value in values)
                return self._is_called(node)
        return False

    def _is_called(self, node: ast.expr, plural: str = "") -> bool:
        name = getattr(node, "attr", getattr(node, "id", ""))
        return NUMBERS.fullmatch(name.lower().removesuffix(plural)) is not None

    # How many GPUs there are

    def _division(self, node: ast.AST, count: ast.expr) -> Iterator[Need]:
        if self._holds_count(count):
            yield Need(node, (Edit(span_of(count), f"max(1, {ast.unparse(count)})"),))

    def _is_count(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.source.dotted(node.func) in COUNTS

    def _asks_for_accelerator(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.source.dotted(node.func) == ACCELERATOR

    def _is_accelerator(self, node: ast.expr) -> bool:
        held = self.source.values(node) if isinstance(node, ast.Name | ast.Attribute) else []
        return any(map(self._asks_for_accelerator, [node, *held]))

    def _is_false(self, test: ast.expr, trail: Trail | None = None) -> bool:
        """True for a condition that cannot hold without a GPU."""
        trail = trail or Trail()
        if trail.ends_at(test):
            return False
        match test:
            case ast.Call(func=called) if self.source.dotted(called) in AVAILABLE:
                return True
            case ast.UnaryOp(op=ast.Not(), operand=other):
                return self._is_true(other)
            case ast.BoolOp(op=ast.And(), values=parts):
                return any(map(self._is_false, parts))
            case ast.BoolOp(values=parts):
                return all(map(self._is_false, parts))
            case ast.Compare(left=one, ops=[ast.Eq()], comparators=[other]):
                counts = self._holds_count(one) or self._holds_count(other)
                return counts and not (_is_zero(one) or _is_zero(other))
            case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()], comparators=[least]):
                return self._holds_count(left) and not _is_zero(least)
            case ast.Compare(left=least, ops=[ast.Lt() | ast.LtE()], comparators=[right]):
                return self._holds_count(right) and not _is_zero(least)
            case ast.Name() | ast.Attribute() if values := self.source.values(test):
                return all(self._is_false(value, trail) for value in values)
        return self._is_count(test)

    def _is_true(self, test: ast.expr) -> bool:
        """True for a condition that always holds without a GPU."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=other):
                return self._is_false(other)
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()]):
                return self._holds_count(left)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return self._holds_count(left) and _is_zero(right)
        return False

    def _holds_count(self, node: ast.expr) -> bool:
        return any(map(self._is_count, [node, *self.source.values(node)]))


def _compared(node: ast.AST) -> list[ast.expr]:
    """What `device == "cuda"`, `"cuda" in device` or `device.startswith("cuda")` compare."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Call(func=ast.Attribute(value=text, attr="startswith"), args=[start]):
            return [text, start]
    return []


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _names_a_device(value: object) -> bool:
    return isinstance(value, str) and value.startswith(
        ("cuda", "cpu", "gpu", "xpu", "nccl", "gloo")
    )


def _argument(
    call: ast.Call, named: dict, name: str, place: int = sys.maxsize
) -> Iterator[ast.expr]:
    """The argument of this name or place, if the call has it."""
    if name in named:
        yield named[name].value
    elif place < len(call.args) and not isinstance(call.args[place], ast.Starred):
        yield call.args[place]


def _statement_of(source: Source, node: ast.AST) -> ast.stmt:
    while not isinstance(node, ast.stmt):
        node = source.parents[node]
    return node


def _method_span(call: ast.Call, method: ast.Attribute) -> Span:
    """From the method's name to the end of the call."""
    line, column = _end(method)
    return Span(line, column - len(method.attr.encode()), *_end(call))


def _end(node: ast.AST) -> tuple[int, int]:
    return span_of(node).end
