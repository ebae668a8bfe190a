"""Evaluates the log of a memory ledger: what each storage was for, and the peak of each part."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from ddp_workbook.recording.held import ROOT, Held, Moment, Piece, tensors

if TYPE_CHECKING:
    from ddp_workbook.recording.memory import MemoryLedger

WRAPPERS = frozenset({"module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})


class Account:
    """The evaluation of a ledger's log, once the fate of every storage is known."""

    def __init__(self, ledger: "MemoryLedger") -> None:
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
        # Start with all and remove others, because FSDP2 may fill a storage from a part of itself.
        while strangers := {p for p in copies if not p.sources <= copies | parameters.keys()}:
            copies -= strangers
        names = {piece: {name} for piece, name in parameters.items()}
        spread(names, {piece: piece.sources for piece in copies})
        copies &= names.keys()
        ahead = {p for p in copies if p.gathered}  # inputs of an all-gather
        while more := {s for p in ahead for s in p.sources if s in copies} - ahead:
            ahead |= more
        copied_on = {source for piece in copies for source in piece.sources}
        for piece in copies:
            piece.part, piece.unit = "unsharded", self.unit(names[piece])
            piece.kind = copy_kind(piece, copies, ahead, copied_on)

    def name_gradients(self, gradients: Mapping[Piece, set[str]]) -> None:
        """Find the gradients before their reduce-scatter: their part, kind and unit."""
        behind = {}  # piece -> the pieces that were made from it
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
        """The name of the unit that holds the parameters of these names."""
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
        """Go through the log to find the peak of each part and the timeline."""
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
        """Compare the current bytes with the peaks so far."""
        for part in ("unsharded", "buckets"):
            self.most[part] = max(self.most[part], parts[part])
        if event.startswith("backward"):
            self.most["activations"] = max(self.most["activations"], parts["activations"])
        if (total := parts.total()) > self.most["peak"]:
            self.most["peak"], self.at_peak = total, dict(+parts)


def loose_part(piece: Piece) -> str:
    """The part of a piece that is neither kept between steps nor a copy of a parameter."""
    if piece.reduced and piece.largest > 8:  # more than a loss or a norm
        return "buckets"
    return {"before": "inputs", "forward": "activations"}.get(piece.made, "temporary")


def copy_kind(piece: Piece, copies: set[Piece], ahead: set[Piece], copied_on: set[Piece]) -> str:
    """What a copy of parameters is for.

    `ahead` are the inputs of all-gathers, `copied_on` the copies that others were made from. If the
    output of an all-gather is not copied, it was gathered into the parameters themselves.
    """
    if piece.gathered:
        return "gather buffers" if piece in copied_on else "gathered"
    if piece in ahead and not any(source.gathered for source in piece.sources):
        return "resharded" if piece.sources & copies else "casts"
    return "gathered"


def spread(names: dict[Piece, set[str]], sources: Mapping[Piece, set[Piece]]) -> None:
    """In `names`, give each piece the names of its sources, directly or through others."""
    changed = True
    while changed:
        changed = False
        for piece, from_these in sources.items():
            found = set().union(*(names.get(source, ()) for source in from_these))
            if not found <= names.get(piece, set()):
                names.setdefault(piece, set()).update(found)
                changed = True


def compute_device(pieces: Iterable[Piece]) -> torch.device:
    """The GPU that holds any of the pieces, else the CPU."""
    devices = sorted({piece.device for piece in pieces}, key=str, reverse=True)
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))


def plain(name: str) -> str:
    """A module's or parameter's name without the wrappers around it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def is_fsdp(module: nn.Module) -> bool:
    """Whether it is a unit of FSDP2, or of FSDP1."""
    return isinstance(module, FSDPModule | FullyShardedDataParallel)


def states(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    """The tensors that the optimizer keeps; with ZeroRedundancyOptimizer, those of this rank."""
    own = getattr(optimizer, "optim", optimizer)
    return list(tensors(list(own.state.values()))) if own is not None else []
