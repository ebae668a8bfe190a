"""`MemoryLedger`: the bytes that this process holds in a training step, by what they are for.

    with MemoryLedger(model, optimizer) as ledger:
        step()              # zero_grad, forward, backward, optimizer.step, in your order
    ledger.held             # Held(parameters=…, gradients=…, optimizer=…, unsharded=…, …), in bytes
    ledger.timeline         # [Moment(event, live), …]: which unit is whole when, in how many bytes
    ledger.at_peak          # {part: bytes} at the moment when all of it together was the most

`model` may be plain, DDP, `fully_shard`ed or FullyShardedByHand; the optimizer may be None. Take a
step after the first one: DDP rebuilds its buckets in the second, an optimizer makes its state in
the first.

How it works: a TorchDispatchMode sees every operation on tensors, including those of FSDP and
autograd. The ledger follows each storage, which several tensors may share, until it is freed. A
storage is a copy of parameters if only moves (copies, casts, concatenations, all-gathers) from
parameters have filled it. A gradient before its reduce-scatter is found from the reduce-scatter
backwards, by the moves that led to it. FSDP2 frees by `storage.resize_(0)`, which is not an
operation, so that method is patched meanwhile. On a GPU the allocator's own peak is higher: it
rounds up, and keeps blocks.
"""

import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_workbook.recording.held import Held, Moment, Piece, tensors
from ddp_workbook.recording.memory_account import Account, plain, states
from ddp_workbook.recording.operations import OPS

# Operations that return the contents of their arguments in another place, dtype or order.
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
# Private in torch 2.13; without them, a buffer that gloo frees late may count in a peak.
COUNTS = hasattr(Tensor, "_use_count") and hasattr(torch._C, "_storage_Use_Count")
PATIENCE = 0.5  # seconds to wait for gloo at most; halved after each wait in vain


class MemoryLedger(TorchDispatchMode):
    """Follows every storage inside its `with` block; see this module's docstring for its use.

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
        # The tensors of the last all-gather, and how many references each had before it.
        self.sent: list[tuple[Tensor, int]] = []
        self.patience = PATIENCE
        self.result: Account | None = None

    @property
    def held(self) -> Held:
        """The bytes, by part."""
        return self._account().held

    @property
    def timeline(self) -> list[Moment]:
        """Full-size pieces in the order of events: a Moment for each event, high and low."""
        return self._account().timeline

    @property
    def at_peak(self) -> dict[str, int]:
        """Bytes by part at the peak; "inputs" and "temporary" are not parts of Held."""
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
        self.note_gradients()  # of the previous step
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
        """Run every operator unchanged; note the storages that it makes, and what it moves."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor unfolds into operations on local tensors
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
        """The piece of this tensor's storage, at its current size; a new piece is noted."""
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
        """Note which pieces now hold the contents of others."""
        name = func._schema.name
        space, _, short = name.partition("::")
        op = OPS.get(short, short) if space in ("c10d", "_c10d_functional") else ""
        if op in GATHERS or op in SCATTERS:
            # An operator of c10d takes the output first, a functional one returns it.
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
        """Wait until gloo has released the tensors of the last all-gather.

        Its thread releases them a moment after the call returns. On a busy machine that may be
        after the next allocation, and the peak would depend on chance.
        """
        sent, self.sent = self.sent, []
        until = time.monotonic() + self.patience
        while any(held_elsewhere(tensor, holders) for tensor, holders in sent if tensor.is_cpu):
            if time.monotonic() > until:  # something else holds it: autograd, or an unfinished call
                self.patience /= 2
                break
            time.sleep(1e-4)

    def _pieces_of(self, values: Any) -> set[Piece]:
        return {self._follow(tensor, "else") for tensor in tensors(values)} - {None}

    def _notice_backward(self) -> None:
        """Mark where backward begins and where it ends."""
        if in_backward() != self.in_backward:
            self.in_backward = not self.in_backward
            self._mark("backward" if self.in_backward else "update")

    def _mark(self, event: str) -> None:
        self._settle()
        if event != self.event:
            self.event = event
            self.log.append((None, 0, event))

    def _watch_blocks(self) -> None:
        """Mark forward and backward of each block, including its hooks."""
        last = lambda: None  # noqa: E731  the output of the block before: the input of the next

        def on_gradient(tensor: Tensor, event: str) -> None:
            self.handles.append(tensor.register_hook(lambda _: self._mark(event)))

        def enter(module: nn.Module, args: tuple) -> None:
            if module in self.blocks and not in_backward():  # checkpointing repeats forward there
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

        # These hooks run before FSDP's, so that its gathering is part of the block's event.
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


def repeated(model: nn.Module) -> Iterator[nn.Module]:
    """The elements of the outermost lists of modules."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else repeated(child)


def gathers(func: Any) -> bool:
    """Whether an operator is an all-gather of torch.distributed."""
    return func.namespace == "c10d" and OPS.get(func._schema.name[len("c10d::") :]) in GATHERS


def held_elsewhere(tensor: Tensor, holders: int) -> bool:
    """Whether anything but this variable holds the tensor, or more than `holders` its storage."""
    return COUNTS and (tensor._use_count() > 1 or holders_of(tensor) > holders)


def holders_of(tensor: Tensor) -> int:
    """How many tensors use the storage of this one, including those of C++."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) if COUNTS else 0


def in_backward() -> bool:
    """Whether autograd runs backward in this thread; PyTorch's own tools ask this way."""
    return torch._C._current_graph_task_id() != -1


def written(func: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that an operator writes to, according to its schema."""
    named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    marked = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
    return [named[name] for name in marked if name in named]
