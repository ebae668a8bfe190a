"""`MemoryLedger`: the bytes that this process holds in a training step, by what they are for.

    with MemoryLedger(model, optimizer) as ledger:
        step()              # zero_grad, forward, backward, optimizer.step, in your order
    ledger.held             # Held(parameters=…, gradients=…, optimizer=…, unsharded=…, …), in bytes
    ledger.timeline         # [Moment(event, live), …]: which unit is whole when, in how many bytes
    ledger.at_peak          # {part: bytes} at the moment when all of it together was the most

`model` may be plain, DDP, `fully_shard`ed or FullyShardedByHand; the optimizer may be None. Take a
step after the first one: DDP rebuilds its buckets in the second, an optimizer makes its state in
the first.

How it knows: a TorchDispatchMode sees every operation on tensors, also those of FSDP and of
autograd. It follows each storage, which several tensors may share, until it is freed. A storage is
a copy of parameters if it was filled by nothing but moves (copies, casts, concatenations,
all-gathers) from parameters. A gradient on its way to a reduce-scatter is found backwards, by the
moves that led to it. FSDP2 frees by `storage.resize_(0)`, which is no operation, so that method is
patched meanwhile. On a GPU the allocator's own peak is higher: it rounds up, and keeps blocks.
"""

import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_workbook.recording.operations import OPS

# Operations that give what is in their arguments, in another place, dtype or order.
MOVES = frozenset(
    {
        "aten::cat",
        "aten::clone",
        "aten::constant_pad_nd",
        "aten::copy_",
        "aten::stack",
        "aten::split_with_sizes_copy",
        "aten::_chunk_cat",
        "aten::_foreach_copy_",
        "aten::_to_copy",
        "fsdp::all_gather_copy_in",
        "fsdp::chunk_cat",
        "fsdp::split_with_sizes_copy",
    }
)
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})
SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})
ROOT = "root"  # the unit of parameters that have no module of their own in common
WRAPPERS = frozenset({"module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
PATIENCE = 0.5  # seconds to wait for gloo at most; half of that after each wait in vain
KINDS = ("gathered", "gather buffers", "gradients", "scatter buffers", "casts", "resharded")


@dataclass(frozen=True)
class Held:
    """Bytes in this process, by part; the names are those of `planning.formulas.Ledger`.

    parameters, gradients, optimizer
        What is kept between steps: whole, or this rank's shards with their padding. Gradients are
        counted when the optimizer steps, optimizer state when the step is over.
    unsharded
        The most that there was at one moment of copies of parameters (gathered ones, and buffers
        and casts on the way) and of gradients before their reduce-scatter.
    buckets
        Flat tensors that are all-reduced: DDP's second copy of the gradients.
    activations
        The most that was alive during backward of what forward has made.
    peak
        All tensors together, at the moment that has the most of them: less than the sum of the
        parts, which do not all peak at once, but with what is only temporary.
    host
        How much of parameters, gradients and optimizer state is in the host's memory while a GPU
        computes; the peak is then the GPU's.
    """

    parameters: int
    gradients: int
    optimizer: int
    unsharded: int = 0
    buckets: int = 0
    activations: int = 0
    peak: int = 0
    host: int = 0

    @property
    def kept(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameters + self.gradients + self.optimizer


class Moment(NamedTuple):
    """What full-size pieces there are after something has happened.

    `event` says where the step is: "forward", "forward blocks.0", "backward blocks.0", "backward"
    (outside of the blocks), "update". `live` has the bytes by (kind, unit). The kinds are KINDS; a
    unit is called after the module that its parameters have in common, or ROOT.
    """

    event: str
    live: dict[tuple[str, str], int]

    @property
    def bytes(self) -> int:
        """All full-size pieces together."""
        return sum(self.live.values())

    @property
    def whole(self) -> dict[str, int]:
        """Bytes of parameters that are ready to compute with, by unit."""
        return {unit: size for (kind, unit), size in self.live.items() if kind == "gathered"}


@dataclass(eq=False)
class Piece:
    """A storage from its first sight to its end. FSDP2 empties one and fills it anew."""

    size: int
    device: torch.device
    made: str  # "before" the ledger, by "forward" (or its repetition), or by something "else"
    event: str
    largest: int = 0
    alive: weakref.ref | None = None
    sources: set["Piece"] = field(default_factory=set)  # it holds what these held
    gathered: bool = False  # by an all-gather
    scattered: bool = False  # on its way to a reduce-scatter, in one flat tensor
    reduced: bool = False  # by an all-reduce
    part: str = ""
    kind: str = ""
    unit: str = ""


class MemoryLedger(TorchDispatchMode):
    """Follows every storage while it is entered; the head of this module says how it is used.

    `blocks` are the modules whose forward and backward the timeline names; by default the elements
    of the outermost `nn.ModuleList`s. Raises RuntimeError if it is read before it has been left, or
    entered twice.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        blocks: Iterable[nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.optimizer = model, optimizer
        chosen = set(repeated(model) if blocks is None else blocks)
        self.blocks = {m: plain(name) for name, m in model.named_modules() if m in chosen}
        self.event, self.in_backward = "forward", False
        self.pieces: dict[int, Piece] = {}  # by address of the storage, while it lives
        self.log: list[tuple[Piece | None, int, str]] = []  # (piece, change of size, event)
        self.parameters: dict[Piece, str] = {}
        self.gradients: dict[Piece, set[str]] = {}  # the names of parameters
        self.gradient_bytes: dict[Piece, int] = {}
        self.handles: list = []
        # What the last all-gather was about, and how many held each tensor before it.
        self.sent: list[tuple[Tensor, int]] = []
        self.patience = PATIENCE
        self.result: Account | None = None

    @property
    def held(self) -> Held:
        """The bytes, by part."""
        return self._account().held

    @property
    def timeline(self) -> list[Moment]:
        """Full-size pieces in the order of events: a Moment for each event, each high, each low."""
        return self._account().timeline

    @property
    def at_peak(self) -> dict[str, int]:
        """Bytes by part at the peak; "inputs" and "temporary" are what is no part of Held."""
        return self._account().at_peak

    def _account(self) -> "Account":
        if self.result is None:
            raise RuntimeError("a MemoryLedger can be read once its `with` block has been left")
        return self.result

    def __enter__(self) -> "MemoryLedger":
        if self.log:
            raise RuntimeError("a MemoryLedger follows one block: make a new one for each")
        for name, parameter in self.model.named_parameters():
            self.parameters[self._follow(parameter, "before")] = plain(name)
        for tensor in [*self.model.buffers(), *states(self.optimizer)]:
            self._follow(tensor, "before")
        self.note_gradients()  # of the step before
        self.gradient_bytes = {}
        self._watch_blocks()
        if self.optimizer is not None:
            self.handles.append(self.optimizer.register_step_pre_hook(self.note_gradients))
        resize = torch.UntypedStorage.resize_
        self.unpatch = lambda: setattr(torch.UntypedStorage, "resize_", resize)

        def resize_and_note(storage: torch.UntypedStorage, size: int) -> Any:
            self._settle()
            result = resize(storage, size)
            if (piece := self.pieces.get(storage._cdata)) is not None:
                self._sized(piece, storage.nbytes())
            return result

        torch.UntypedStorage.resize_ = resize_and_note
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._settle()
        self.unpatch()
        for handle in self.handles:
            handle.remove()
        if not self.gradient_bytes:
            self.note_gradients()
        self.result = Account(self)
        # A DDP object that outlives its group can hang on gloo (torch 2.13): keep none alive.
        self.model = self.optimizer = None
        self.blocks, self.pieces, self.handles = {}, {}, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run every operator as it is; note the storages that it makes, and what it moves."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor, say: it unfolds into operations on local tensors
        self._settle()
        self._notice_backward()
        kwargs = kwargs or {}
        given = list(tensors((args, kwargs)))
        for tensor in given:
            self._follow(tensor, "before")
        holders = [(tensor, holders_of(tensor)) for tensor in given] if gathers(func) else []
        result = func(*args, **kwargs)
        made = "forward" if torch.is_grad_enabled() else "else"
        resized = given if func._schema.is_mutable else ()  # maybe
        for tensor in (*tensors(result), *resized):
            self._follow(tensor, made)
        self._link(func, args, kwargs, result)
        self.sent = [(t, n) for t, n in holders if self._follow(t, made) not in self.parameters]
        return result

    def _follow(self, tensor: Tensor, made: str) -> Piece | None:
        """The piece of this tensor's storage, at its size now; a new one is noted."""
        tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = tensor.untyped_storage()
        if storage.device.type == "meta":  # DTensor tries its operations on fake tensors first
            return None
        address = storage._cdata
        if (piece := self.pieces.get(address)) is None:
            piece = self.pieces[address] = Piece(0, storage.device, made, self.event)
            piece.alive = weakref.ref(storage, lambda _: self._freed(address))
        self._sized(piece, storage.nbytes())
        return piece

    def _sized(self, piece: Piece, size: int) -> None:
        if size != piece.size:
            self.log.append((piece, size - piece.size, self.event))
            piece.size, piece.largest = size, max(size, piece.largest)

    def _freed(self, address: int) -> None:
        if (piece := self.pieces.pop(address, None)) is not None:
            self._sized(piece, 0)

    def _link(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """Note which pieces hold now what others held."""
        name = func._schema.name
        space, _, short = name.partition("::")
        op = OPS.get(short, short) if space in ("c10d", "_c10d_functional") else ""
        if op in GATHERS or op in SCATTERS:
            # An operator of c10d gets the output first, a functional one gives it back.
            outputs, inputs = (args[0], args[1]) if space == "c10d" else (result, args[0])
        elif name in MOVES:
            outputs, inputs = (result, written(func, args, kwargs)), (args, kwargs)
        elif op == "all_reduce":
            outputs, inputs = (), args
        else:
            return
        targets = self._pieces_of(outputs)
        sources = self._pieces_of(inputs) - targets
        for target in targets:
            target.sources |= sources
            target.gathered |= op in GATHERS
            target.scattered |= name == "fsdp::chunk_cat"  # with one rank nothing is sent after it
        for source in sources:
            source.scattered |= op in SCATTERS
            source.reduced |= op == "all_reduce"

    def _settle(self) -> None:
        """Wait until gloo has let go of what the last all-gather was about.

        Its thread drops the tensors a moment after the call is over. On a busy machine that may be
        after the next allocation, and the peak would be a matter of chance.
        """
        sent, self.sent = self.sent, []
        until = time.monotonic() + self.patience
        while any(t._use_count() > 1 or holders_of(t) > n for t, n in sent if t.is_cpu):
            if time.monotonic() > until:  # others hold it: autograd, or a call that is not over
                self.patience /= 2
                break
            time.sleep(1e-4)

    def _pieces_of(self, values: Any) -> set[Piece]:
        return {self._follow(tensor, "else") for tensor in tensors(values)} - {None}

    def _notice_backward(self) -> None:
        """Mark where backward begins, and where it has ended."""
        if in_backward() != self.in_backward:
            self.in_backward = not self.in_backward
            self._mark("backward" if self.in_backward else "update")

    def _mark(self, event: str) -> None:
        self._settle()
        if event != self.event:
            self.event = event
            self.log.append((None, 0, event))

    def _watch_blocks(self) -> None:
        """Mark forward and backward of each block, what its hooks do included."""
        last = lambda: None  # noqa: E731  the output of the block before: the input of the next

        def on_gradient(tensor: Tensor, event: str) -> None:
            self.handles.append(tensor.register_hook(lambda _: self._mark(event)))

        def enter(module: nn.Module, args: tuple) -> None:
            if module in self.blocks and not in_backward():  # checkpointing repeats it there
                self._mark(f"forward {self.blocks[module]}")
                for tensor in tensors(args):
                    if tensor.requires_grad and tensor is not last():
                        on_gradient(tensor, "backward")

        def leave(module: nn.Module, args: tuple, output: Any) -> None:
            nonlocal last
            for tensor in tensors(output):
                if tensor.requires_grad and not in_backward():
                    last = weakref.ref(tensor)
                    on_gradient(tensor, f"backward {self.blocks[module]}")

        def left(module: nn.Module, args: tuple, output: Any) -> None:
            if not in_backward():
                self._mark("forward")

        # These come before FSDP's own hooks, so that its gathering is part of the block's event.
        self.handles.append(nn.modules.module.register_module_forward_pre_hook(enter))
        for block in self.blocks:
            self.handles.append(block.register_forward_hook(leave, prepend=True))
            self.handles.append(block.register_forward_hook(left))

    def note_gradients(self, *_: Any) -> None:
        """Count the gradients as they are now."""
        self.gradient_bytes = {}
        for name, parameter in self.model.named_parameters():
            for tensor in tensors(parameter.grad):
                piece = self._follow(tensor, "else")
                self.gradients.setdefault(piece, set()).add(plain(name))
                self.gradient_bytes[piece] = piece.size


class Account:
    """What a ledger's log comes to, now that it is known what became of each storage."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.log = ledger.log
        self.pieces = {piece for piece, *_ in self.log if piece is not None}
        self.owners = {plain(n) for n, m in ledger.model.named_modules() if is_fsdp(m)}
        optimizer = {ledger._follow(tensor, "else") for tensor in states(ledger.optimizer)}
        self.kept = dict.fromkeys(ledger.gradients, "gradients")
        self.kept |= dict.fromkeys(optimizer, "optimizer")
        self.kept |= dict.fromkeys(ledger.parameters, "parameters")
        for piece in self.pieces:
            piece.part = self.kept.get(piece) or loose_part(piece)
        self.name_copies(ledger.parameters)
        self.name_gradients(ledger.gradients)
        self.compute_device = compute_device(self.pieces)
        self.replay()
        kept = {
            "parameters": {piece: piece.size for piece in ledger.parameters},
            "gradients": ledger.gradient_bytes,
            "optimizer": {piece: piece.size for piece in optimizer - ledger.parameters.keys()},
        }
        self.held = Held(
            **{part: sum(sizes.values()) for part, sizes in kept.items()},
            **{part: self.most[part] for part in ("unsharded", "buckets", "activations", "peak")},
            host=sum(
                size
                for sizes in kept.values()
                for piece, size in sizes.items()
                if piece.device != self.compute_device
            ),
        )

    def name_copies(self, parameters: Mapping[Piece, str]) -> None:
        """Find the copies of parameters: their part, kind and unit."""
        copies = {p for p in self.pieces if p.sources and p not in self.kept}
        # Start with all and take away, for FSDP2 may fill a storage from a part of itself.
        while strangers := {p for p in copies if not p.sources <= copies | parameters.keys()}:
            copies -= strangers
        names = {piece: {name} for piece, name in parameters.items()}
        spread(names, {piece: piece.sources for piece in copies})
        copies &= names.keys()
        ahead = {p for p in copies if p.gathered}  # what is on its way to an all-gather
        while more := {s for p in ahead for s in p.sources if s in copies} - ahead:
            ahead |= more
        copied_on = {source for piece in copies for source in piece.sources}
        for piece in copies:
            piece.part, piece.unit = "unsharded", self.unit(names[piece])
            piece.kind = copy_kind(piece, copies, ahead, copied_on)

    def name_gradients(self, gradients: Mapping[Piece, set[str]]) -> None:
        """Find the gradients that have yet to be scattered: their part, kind and unit."""
        behind = {}  # piece -> the pieces that were made of it
        for piece in self.pieces:
            for source in piece.sources:
                behind.setdefault(source, set()).add(piece)
        names = {piece: set(found) for piece, found in gradients.items()}
        spread(names, behind)
        flat = {p for p in self.pieces if p.scattered and p not in self.kept}
        whole = set(flat)
        while more := {s for p in whole for s in p.sources} - whole - self.kept.keys():
            whole |= more
        for piece in whole:
            if piece.part != "unsharded":
                piece.part = "unsharded"
                piece.kind = "scatter buffers" if piece in flat else "gradients"
                piece.unit = self.unit(names.get(piece, set()))

    def unit(self, names: set[str]) -> str:
        """What to call the unit that holds the parameters of these names."""
        paths = [name.split(".")[:-1] for name in names] or [[]]
        if self.owners:  # the innermost module that fully_shard was called on
            path = paths[0]
            while ".".join(path) not in self.owners and path:
                path = path[:-1]
        else:
            columns = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
            path = [parts[0] for parts in columns]
        return ".".join(path) or ROOT

    def replay(self) -> None:
        """Go through the log: the most of each part, and the timeline."""
        self.timeline = [Moment("forward", {})]
        self.most, self.at_peak = Counter(), {}
        parts, live, direction, event = Counter(), Counter(), 0, "forward"
        for piece, change, event_now in self.log:
            full_size = piece is not None and piece.part == "unsharded"
            turns = full_size and direction and (change > 0) != (direction > 0)
            if (turns or piece is None) and direction:
                self.timeline.append(Moment(event, dict(+live)))
                direction = 0
            if piece is None:
                self.timeline.append(Moment(event_now, dict(+live)))
            event = event_now
            if full_size:
                live[piece.kind, piece.unit] += change
                direction = change
            if piece is not None and piece.device == self.compute_device:
                parts[piece.part] += change
                self.note_most(parts, event)
        if direction:
            self.timeline.append(Moment(event, dict(+live)))

    def note_most(self, parts: Counter, event: str) -> None:
        """Compare what is there now with the most so far."""
        for part in ("unsharded", "buckets"):
            self.most[part] = max(self.most[part], parts[part])
        if event.startswith("backward"):
            self.most["activations"] = max(self.most["activations"], parts["activations"])
        if (total := parts.total()) > self.most["peak"]:
            self.most["peak"], self.at_peak = total, dict(+parts)


def loose_part(piece: Piece) -> str:
    """The part of a piece that is not kept between steps, if it is no copy of a parameter."""
    if piece.reduced and piece.largest > 8:  # more than a loss or a norm
        return "buckets"
    return {"before": "inputs", "forward": "activations"}.get(piece.made, "temporary")


def copy_kind(piece: Piece, copies: set[Piece], ahead: set[Piece], copied_on: set[Piece]) -> str:
    """What a copy of parameters is for.

    `ahead` are those that an all-gather was made of, `copied_on` those that others were made of. An
    all-gather whose output is not copied has gathered into the parameters themselves.
    """
    if piece.gathered:
        return "gather buffers" if piece in copied_on else "gathered"
    if piece in ahead and not any(source.gathered for source in piece.sources):
        return "resharded" if piece.sources & copies else "casts"
    return "gathered"


def spread(names: dict[Piece, set[str]], sources: Mapping[Piece, set[Piece]]) -> None:
    """Give each piece the names of its sources, and of theirs, in `names`."""
    changed = True
    while changed:
        changed = False
        for piece, from_these in sources.items():
            found = set().union(*(names.get(source, ()) for source in from_these))
            if not found <= names.get(piece, set()):
                names.setdefault(piece, set()).update(found)
                changed = True


def compute_device(pieces: Iterable[Piece]) -> torch.device:
    """A GPU if there is something on one, else the CPU."""
    devices = sorted({piece.device for piece in pieces}, key=str, reverse=True)
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))


def repeated(model: nn.Module) -> Iterator[nn.Module]:
    """The elements of the outermost lists of modules."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else repeated(child)


def plain(name: str) -> str:
    """A module's or parameter's name without the wrappers around it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def is_fsdp(module: nn.Module) -> bool:
    """Whether it is a unit of FSDP2, or of FSDP1."""
    return isinstance(module, FSDPModule | FullyShardedDataParallel)


def gathers(func: Any) -> bool:
    """Whether an operator is an all-gather of torch.distributed."""
    return func.namespace == "c10d" and OPS.get(func._schema.name[len("c10d::") :]) in GATHERS


def holders_of(tensor: Tensor) -> int:
    """How many tensors there are on the storage of this one, C++'s own included."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def in_backward() -> bool:
    """Whether autograd runs a backward in this thread. PyTorch's own tools ask in this way."""
    return torch._C._current_graph_task_id() != -1


def states(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    """The tensors that the optimizer keeps; those of this rank, in ZeroRedundancyOptimizer."""
    own = getattr(optimizer, "optim", optimizer)
    return list(tensors(list(own.state.values()))) if own is not None else []


def written(func: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that an operator writes to, as its schema has them."""
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    marked = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
    return [named[name] for name in marked if name in named]


def tensors(values: Any) -> Iterator[Tensor]:
    """The tensors in a value, lists and dicts of them included; of a sparse one, its parts."""
    if isinstance(values, Tensor):
        if values.layout == torch.sparse_coo:
            yield from (values._indices(), values._values())
        elif values.layout == torch.strided:
            yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors(value)
    elif isinstance(values, dict):
        yield from tensors(list(values.values()))
