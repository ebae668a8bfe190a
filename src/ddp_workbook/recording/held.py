"""The results of a memory ledger (`Held`, `Moment`), and what it follows (`Piece`)."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROOT = "root"  # the unit of parameters that have no module of their own in common
KINDS = ("gathered", "gather buffers", "gradients", "scatter buffers", "casts", "resharded")


@dataclass(frozen=True)
class Held:
    """Bytes in this process, by part; the names are those of `planning.formulas.Ledger`.

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
    def kept(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameters + self.gradients + self.optimizer


class Moment(NamedTuple):
    """The full-size pieces that exist after an event.

    `event` says where the step is: "forward", "forward blocks.0", "backward blocks.0", "backward"
    (outside of the blocks), "update". `live` has the bytes by (kind, unit). The kinds are KINDS; a
    unit has the name of the module that its parameters have in common, or ROOT.
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
    """A storage from its first appearance to its end. FSDP2 empties storages and refills them."""

    size: int
    device: torch.device
    made: str  # "before" the ledger, by "forward" (or its repetition), or by something "else"
    event: str
    largest: int = 0
    alive: weakref.ref | None = None
    sources: set["Piece"] = field(default_factory=set)  # whose contents it holds
    gathered: bool = False  # by an all-gather
    scattered: bool = False  # on its way to a reduce-scatter, in one flat tensor
    reduced: bool = False  # by an all-reduce
    part: str = ""
    kind: str = ""
    unit: str = ""


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
