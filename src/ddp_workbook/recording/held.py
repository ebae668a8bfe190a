"""What a memory ledger tells (`Held`, `Moment`), and what it follows (`Piece`)."""

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
