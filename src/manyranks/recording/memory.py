"""`MemoryLedger`: the bytes that this process holds in a training step, by what they are for.

    with MemoryLedger(model, optimizer) as ledger:
        step()              # zero_grad, forward, backward, optimizer.step, in your order
    ledger.held             # MemoryBreakdown(parameters=…, gradients=…, unsharded=…, …), in bytes
    ledger.timeline         # [Moment(event, live), …]: which unit is whole when, in how many bytes

`model` may be plain, DDP, `fully_shard`ed, or have `units` that gather and reduce as those of
FullyShardedByHand; the optimizer may be None. Take a step after the first one: DDP rebuilds its
buckets in the second, an optimizer makes its state in the first.

The bytes are counted by PyTorch's MemTracker, which sees every operation and follows each storage
until it is freed or emptied. Its FSDPMemTracker knows no unit, so what is full-size is found here:
from the calls in which a unit gathers and reduces, and the collectives inside them. On a GPU the
allocator's own peak is higher: it rounds up, and keeps blocks.
"""

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed._tools.common_utils import get_untyped_storages as storages_of
from torch.distributed._tools.mem_tracker import (
    MemTracker,
    _MemRefType,
    _UpdateType,
    _WeakRefInfo,
)
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.utils._pytree import tree_leaves

from manyranks.network.operators import OPS

ROOT = "root"  # the unit of parameters that have no module of their own in common
WRAPPERS = frozenset({"module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
GATHERS = frozenset({"all_gather", "all_gather_into_tensor"})
SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})
MODEL_STATES = ("parameters", "gradients", "optimizer")
# Private in torch 2.13; without them, a buffer that gloo frees late may count in a peak.
HAS_USE_COUNTS = hasattr(Tensor, "_use_count") and hasattr(torch._C, "_storage_Use_Count")
GLOO_WAIT_S = 0.5  # seconds to wait for gloo at most; halved after each wait in vain


@dataclass(frozen=True)
class MemoryBreakdown:
    """Bytes in this process, by part; the names are those of `planning`'s Ledger.

    parameters, gradients, optimizer
        What stays between steps: whole tensors, or this rank's shards with their padding.
        Gradients are counted when the optimizer steps, optimizer state after the step.
    unsharded
        The largest sum at one moment of copies of parameters (gathered ones, and buffers and casts
        on the way) and gradients before their reduce-scatter.
    buckets
        Flat tensors for the all-reduces: DDP's second copy of the gradients.
    activations
        The most that was alive, during backward, of the tensors that forward made.
    peak
        All tensors together, temporary ones included, at the moment when they are largest: less
        than the sum of the parts, which do not all peak at once.
    host
        The part of parameters, gradients and optimizer state that is in the host's memory while a
        GPU computes; the peak is then the GPU's.
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
    def model_states(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameters + self.gradients + self.optimizer


class Moment(NamedTuple):
    """The full-size pieces that exist after an event.

    `event` says where the step is: "forward", "forward blocks.0", "backward blocks.0", "backward"
    (outside of the blocks), "update". `live` has the bytes by (kind, unit). The kinds are
    "gathered", "gather buffers", "casts" (on their way into one), "resharded" (what
    `reshard_after_forward=int` keeps), "gradients" and "scatter buffers"; a unit has the name of
    the module that its parameters have in common, or ROOT.
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


class MemoryLedger(MemTracker):
    """Follows every storage inside its `with` block; see this module's docstring for its use.

    The timeline names forward and backward of the elements of the outermost `nn.ModuleList`s.
    Raises RuntimeError if it is read before it has been left, or entered twice.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        super().__init__()
        self.model, self.optimizer = model, optimizer
        repeats = set(module_list_elements(model))
        self.blocks = {m: strip_wrappers(name) for name, m in model.named_modules() if m in repeats}
        self.event, self.backward_runs = "forward", False
        # A storage's entry in MemTracker (None: an event begins), its change of size, the event.
        self.log: list[tuple[_WeakRefInfo | None, int, str]] = []
        self.sizes: dict[_WeakRefInfo, int] = {}
        self.full_size: dict[_WeakRefInfo, tuple[str, str]] = {}  # its kind and unit
        self.states: dict[_WeakRefInfo, str] = {}  # its part
        self.gradients: dict[_WeakRefInfo, int] = {}  # bytes, as the optimizer finds them
        self.all_reduce_storages: set[_WeakRefInfo] = set()  # by an all-reduce
        self.kind, self.unit = "", ""  # of what is allocated now
        self.undo: list[Callable[[], Any]] = []
        # The tensors of the last all-gather, and how many references each had before it.
        self.gathered_tensors: list[tuple[Tensor, int]] = []
        self.gloo_wait_s = GLOO_WAIT_S
        self.result: tuple[MemoryBreakdown, list[Moment]] | None = None

    @property
    def held(self) -> MemoryBreakdown:
        """The bytes, by part."""
        return self._read()[0]

    @property
    def timeline(self) -> list[Moment]:
        """Full-size pieces in the order of events: a Moment for each event, high and low."""
        return self._read()[1]

    def _read(self) -> tuple[MemoryBreakdown, list[Moment]]:
        if self.result is None:
            raise RuntimeError("a MemoryLedger can be read once its `with` block has been left")
        return self.result

    def __enter__(self) -> "MemoryLedger":
        if self.log:
            raise RuntimeError("a MemoryLedger follows one block: make a new one for each")
        self._entries(self.model.buffers())
        self.states |= dict.fromkeys(self._entries(optimizer_tensors(self.optimizer)), "optimizer")
        self.note_gradients()  # of the previous step
        self.gradients = {}
        self.states |= dict.fromkeys(self._entries(self.model.parameters()), "parameters")
        self._watch_blocks()
        self._watch_units()
        if self.optimizer is not None:
            self.undo.append(self.optimizer.register_step_pre_hook(self.note_gradients).remove)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._wait_for_gloo()
        for undo in self.undo:
            undo()
        if not self.gradients:
            self.note_gradients()
        state_entries = self._entries(optimizer_tensors(self.optimizer))
        self.states = dict.fromkeys(state_entries, "optimizer") | self.states
        self.result = self._replay()
        # A DDP object that outlives its group can hang on gloo (torch 2.13): keep none alive.
        del self.model, self.optimizer
        self.blocks, self.undo = {}, []

    # What MemTracker calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run every operator unchanged; note what it makes, and what a collective moves."""
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a DTensor unfolds into operations on local tensors
        self._wait_for_gloo()
        if (now := self._mod_tracker.is_bw) != self.backward_runs:
            self.backward_runs = now
            self._mark("backward" if now else "update")
        tensors = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        self._entries(tensors)
        space, _, name = func._schema.name.partition("::")
        op = OPS.get(name, name) if space in ("c10d", "_c10d_functional") else ""
        holders = [(tensor, holders_of(tensor)) for tensor in tensors] if op in GATHERS else []
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self._link(op or name, space, args, kwargs or {}, result)
        self.gathered_tensors = [
            (tensor, count)
            for tensor, count in holders
            if not any(self.states.get(entry) == "parameters" for entry in self._entries([tensor]))
        ]
        return result

    def _track(self, reftype: Any, t: Tensor) -> None:
        """Forward's, also where a checkpoint repeats it in backward; else temporary."""
        if reftype is not _MemRefType.OTH:  # which is what it has not seen being made
            reftype = _MemRefType.ACT if torch.is_grad_enabled() else _MemRefType.TEMP
        for tensor in dense_parts(t):
            super()._track(reftype, tensor)

    def _update_snap(self, u_type: Any, winfo: _WeakRefInfo, *args: Any, **kwargs: Any) -> None:
        super()._update_snap(u_type, winfo, *args, **kwargs)
        # Not `mem_consumed`, which is rounded up on a GPU.
        size = 0 if u_type is _UpdateType.DEL else winfo.size * winfo.element_size
        if change := size - self.sizes.get(winfo, 0):
            self.log.append((winfo, change, self.event))
            self.sizes[winfo] = size
            if change > 0 and self.kind:
                self.full_size.setdefault(winfo, (self.kind, self.unit))

    def _no_hook(self, *_: Any) -> None:
        """MemTracker's statistics by module allow for one forward only."""

    _pre_fw_hook = _post_fw_hook = _pre_bw_hook = _post_bw_hook = _no_hook

    # What is full-size

    def _entries(self, tensors: Iterable[Tensor]) -> list[_WeakRefInfo]:
        """MemTracker's entries of these tensors' storages, made if there are none."""
        entries = []
        for tensor in tensors:
            storages = [storage for part in dense_parts(tensor) for storage in storages_of(part)]
            if all(storage.device.type != "meta" for storage in storages):  # DTensor tries ahead
                self._track(_MemRefType.OTH, tensor)
                entries += [self._WINFO[storage][0] for storage in storages]
        return entries

    def _link(self, op: str, space: str, args: tuple, kwargs: dict, result: Any) -> None:
        """Note what a collective is about: a unit's buffers, or DDP's buckets."""
        # An operator of c10d takes the output first, a functional one returns it.
        first, second = (args[:2]) if space == "c10d" else (result, args[0] if args else ())
        if op in GATHERS and self.unit:
            self._name("gather buffers", first)
            self.kind = "gathered"  # what is allocated next is copied out of them
        elif op in SCATTERS and self.unit:
            self._name("scatter buffers", second)
        elif space == "fsdp" and op == "chunk_cat" and self.unit:  # with one rank, nothing is sent
            self._name("scatter buffers", kwargs.get("out", args[-1]))
        elif op == "all_reduce":
            self.all_reduce_storages.update(
                self._entries(t for t in tree_leaves(args) if torch.is_tensor(t))
            )

    def _name(self, kind: str, values: Any) -> None:
        for entry in self._entries(t for t in tree_leaves(values) if torch.is_tensor(t)):
            self.full_size[entry] = (kind, self.unit)

    def _watch_units(self) -> None:
        """Mark the calls in which a unit of FSDP2, or of a program by hand, gathers and reduces."""

        def mark_calls(owner: Any, method: str, kind: str) -> None:
            original = getattr(owner, method)
            own = method in vars(owner)

            @wraps(original)
            def marked(*args: Any, **kwargs: Any) -> Any:
                before = self.kind, self.unit
                unit = args[0] if isinstance(owner, type) else owner
                self.kind, self.unit = kind, unit_name(unit)
                if method in ("post_backward", "reduce_scatter"):
                    self._name("gradients", list(whole_gradients(unit, args)))
                try:
                    return original(*args, **kwargs)
                finally:
                    self.kind, self.unit = before

            setattr(owner, method, marked)
            self.undo.append(
                lambda: setattr(owner, method, original) if own else delattr(owner, method)
            )

        mark_calls(FSDPParamGroup, "unshard", "casts")
        mark_calls(FSDPParamGroup, "wait_for_unshard", "gathered")
        mark_calls(FSDPParamGroup, "_to_sharded_post_forward", "resharded")
        mark_calls(FSDPParamGroup, "post_backward", "")
        for unit in getattr(self.model, "units", ()):
            mark_calls(unit, "all_gather", "casts")
            mark_calls(unit, "reduce_scatter", "scatter buffers")

    def _wait_for_gloo(self) -> None:
        """Wait until gloo has released the tensors of the last all-gather.

        Its thread releases them a moment after the call returns. On a busy machine that may be
        after the next allocation, and the peak would depend on chance.
        """
        gathered, self.gathered_tensors = self.gathered_tensors, []
        deadline = time.monotonic() + self.gloo_wait_s
        while any(
            has_other_holders(tensor, holders) for tensor, holders in gathered if tensor.is_cpu
        ):
            if time.monotonic() > deadline:  # autograd holds it, or an unfinished call
                self.gloo_wait_s /= 2
                break
            time.sleep(1e-4)

    # What happens when

    def _mark(self, event: str) -> None:
        self._wait_for_gloo()
        if event != self.event:
            self.event = event
            self.log.append((None, 0, event))

    def _watch_blocks(self) -> None:
        """Mark forward and backward of each block, including its hooks."""
        last = lambda: None  # noqa: E731  the output of the block before: the input of the next

        def on_gradient(tensor: Tensor, event: str) -> None:
            self.undo.append(tensor.register_hook(lambda _: self._mark(event)).remove)

        def enter(module: nn.Module, args: tuple) -> None:
            if module in self.blocks and not self._mod_tracker.is_bw:  # there, a checkpoint's
                self._mark(f"forward {self.blocks[module]}")
                for tensor in tree_leaves(args):
                    if torch.is_tensor(tensor) and tensor.requires_grad and tensor is not last():
                        on_gradient(tensor, "backward")

        def leave(module: nn.Module, args: tuple, output: Any) -> None:
            nonlocal last
            for tensor in tree_leaves(output):
                if torch.is_tensor(tensor) and tensor.requires_grad and not self._mod_tracker.is_bw:
                    last = weakref.ref(tensor)
                    on_gradient(tensor, f"backward {self.blocks[module]}")

        def after_hooks(module: nn.Module, args: tuple, output: Any) -> None:
            if not self._mod_tracker.is_bw:
                self._mark("forward")

        # These hooks run before FSDP's, so that its gathering is part of the block's event.
        self.undo.append(nn.modules.module.register_module_forward_pre_hook(enter).remove)
        for block in self.blocks:
            self.undo.append(block.register_forward_hook(leave, prepend=True).remove)
            self.undo.append(block.register_forward_hook(after_hooks).remove)

    def note_gradients(self, *_: Any) -> None:
        """Count the gradients as they are now."""
        gradients = (p.grad for p in self.model.parameters() if p.grad is not None)
        self.gradients = {entry: self.sizes.get(entry, 0) for entry in self._entries(gradients)}
        self.states |= dict.fromkeys(self.gradients, "gradients")

    # The evaluation, once the fate of every storage is known

    def _part(self, entry: _WeakRefInfo) -> str:
        """What a storage was for."""
        if entry in self.states:
            return self.states[entry]
        if entry in self.full_size:
            return "unsharded"
        if entry in self.all_reduce_storages and entry.size > 8:  # more than a loss or a norm
            return "buckets"
        return "activations" if entry.reftype is _MemRefType.ACT else "temporary"

    def _replay(self) -> tuple[MemoryBreakdown, list[Moment]]:
        """Go through the log to find the peak of each part and the timeline."""
        parts_of = {entry: self._part(entry) for entry, *_ in self.log if entry is not None}
        devices = sorted({entry.device for entry in parts_of}, key=str, reverse=True)
        of_gpu = (d for d in devices if d.type not in ("cpu", "meta"))  # on meta nothing is held
        device = next(of_gpu, torch.device("cpu"))
        timeline, peaks = [Moment("forward", {})], Counter[str]()
        parts, live = Counter[str](), Counter[tuple[str, str]]()
        direction, event = 0, "forward"
        for entry, change, event_now in self.log:
            full_size = entry is not None and parts_of[entry] == "unsharded"
            turns = full_size and direction and (change > 0) != (direction > 0)
            if (turns or entry is None) and direction:
                timeline.append(Moment(event, dict(+live)))
                direction = 0
            event = event_now
            if entry is None:
                timeline.append(Moment(event, dict(+live)))
                continue
            if full_size:
                live[self.full_size[entry]] += change
                direction = change
            if entry.device == device:
                parts[parts_of[entry]] += change
                for part in ("unsharded", "buckets", "activations"):
                    if part != "activations" or event.startswith("backward"):
                        peaks[part] = max(peaks[part], parts[part])
                peaks["peak"] = max(peaks["peak"], parts.total())
        if direction:
            timeline.append(Moment(event, dict(+live)))
        state_bytes = {
            entry: self.gradients.get(entry, 0) for entry in parts_of if entry in self.states
        }
        state_bytes |= {
            entry: self.sizes[entry] for entry in state_bytes if self.states[entry] != "gradients"
        }
        sums = {
            part: sum(n for e, n in state_bytes.items() if self.states[e] == part)
            for part in MODEL_STATES
        }
        host = sum(size for entry, size in state_bytes.items() if entry.device != device)
        names = ("unsharded", "buckets", "activations", "peak")
        breakdown = MemoryBreakdown(**sums, **{name: peaks[name] for name in names}, host=host)
        return breakdown, timeline


def module_list_elements(model: nn.Module) -> Iterator[nn.Module]:
    """The elements of the outermost lists of modules."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else module_list_elements(child)


def unit_name(unit: Any) -> str:
    """The name of the module that a unit's parameters have in common, or ROOT."""
    if isinstance(unit, FSDPParamGroup):
        return strip_wrappers(unit._module_fqn or "") or ROOT
    columns = zip(*[name.split(".")[:-1] for name in unit.names], strict=False)
    return ".".join(same[0] for same in takewhile(lambda c: len(set(c)) == 1, columns)) or ROOT


def whole_gradients(unit: Any, args: tuple) -> Iterator[Tensor]:
    """A unit's gradients before they are reduced: by hand, those that it is given."""
    if not isinstance(unit, FSDPParamGroup):
        yield from args[0]
        return
    for parameter in unit.fsdp_params:
        whole = getattr(parameter, "_unsharded_param", None)
        gradients = (parameter.unsharded_accumulated_grad, None if whole is None else whole.grad)
        yield from (gradient for gradient in gradients if gradient is not None)


def dense_parts(tensor: Tensor) -> list[Tensor]:
    """The tensors that have a storage: of a sparse one, its parts."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    return [tensor] if tensor.layout == torch.strided else []


def has_other_holders(tensor: Tensor, holders: int) -> bool:
    """Whether anything but this variable holds the tensor, or more than `holders` its storage."""
    return HAS_USE_COUNTS and (tensor._use_count() > 1 or holders_of(tensor) > holders)


def holders_of(tensor: Tensor) -> int:
    """How many tensors use the storage of this one, including those of C++."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) if HAS_USE_COUNTS else 0


def strip_wrappers(name: str) -> str:
    """A module's name without the wrappers around it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    """The tensors that the optimizer keeps; with ZeroRedundancyOptimizer, those of this rank."""
    own = getattr(optimizer, "optim", optimizer)
    values = tree_leaves([*own.state.values()]) if own is not None else []
    return [value for value in values if isinstance(value, Tensor)]
