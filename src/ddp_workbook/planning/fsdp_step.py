"""One training step of FSDP2 in the order of its code: what is whole when, and what is sent.

Follows torch 2.13's `torch/distributed/fsdp/_fully_shard` (`_fsdp_param_group.py` has the order,
`_fsdp_collectives.py` the buffers); tests compare it with real steps. Surprising facts:

- An all-gather fills one flat buffer, then each parameter is copied out of it. While a unit
  computes in forward, its buffer still exists, so every gathered unit is held twice.
- In forward the buffer of one unit is freed only when the next one is ready, so for a moment there
  are two buffers. In backward the next unit is gathered before the current one computes
  (prefetching).
- The root stays whole from the first forward moment to the end of backward.
- A reduce-scatter's input, again a flat buffer, is kept until the next unit's gradients are ready.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import torch

from ddp_workbook.planning.shards import Unit, Units, shard_of

FLOAT = torch.float32
FORWARD_ENDS = "forward ends"
SINGULAR = {"gather buffers": "gather buffer", "scatter buffers": "scatter buffer", "casts": "cast"}


class Message(NamedTuple):
    """One call of one rank: `bytes` handed in, and `received`, as in `record_collectives`."""

    op: str
    when: str  # "forward", "backward" or "optimizer step"
    unit: int | None  # index of the unit; None if the call belongs to no unit
    bytes: int
    received: int
    ranks: int  # in the group
    stride: int = 1  # from one member's rank to the next: HSDP's replicas are `shards` apart


class Moment(NamedTuple):
    """The full-size pieces that a rank holds after an event, in bytes.

    `live` has the keys "gathered" (parameters ready to compute), "gather buffers", "gradients" (as
    autograd made them), "scatter buffers", "casts" (shards in another dtype, on their way) and
    "resharded" (what `reshard_after_forward=int` keeps), each (kind, index of the unit).
    `sharded_gradients` are the bytes of gradients reduced so far, which stay.
    """

    event: str
    live: dict[tuple[str, int], int]
    sharded_gradients: int = 0

    @property
    def bytes(self) -> int:
        """All full-size pieces together."""
        return sum(self.live.values())

    def in_words(self) -> dict[str, int]:
        """The pieces with their names: "block 3, gathered" and so on."""
        pieces = self.live.items()
        return {
            f"{name(index)}, {SINGULAR.get(kind, kind)}": size for (kind, index), size in pieces
        }


@dataclass
class FsdpStep:
    """`moments` and `messages` of one step, forward and backward, of rank 0 in a group of `ranks`.

    `units` are shapes as in `shards`. The model is cut over `ranks` ranks, and `replicas` such
    groups hold copies (HSDP).
    `param_dtype` and `reduce_dtype` are those of MixedPrecisionPolicy; None means `dtype`, that of
    the sharded parameters. `root_first` says how many of the root's parameters are used before the
    blocks: their gradients come last. All parameters are trained.

    Raises ValueError for an int `reshard_after_forward` that does not divide the ranks.
    """

    units: Units
    ranks: int
    reshard_after_forward: bool | int = True
    dtype: torch.dtype = FLOAT
    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    replicas: int = 1
    offload: bool = False
    root_first: int = 0
    moments: list[Moment] = field(default_factory=list, init=False)
    messages: list[Message] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.reshard_to = reshard_to(self.reshard_after_forward, self.ranks)
        self.compute = (self.param_dtype or self.dtype).itemsize
        self.reduce = (self.reduce_dtype or self.param_dtype or self.dtype).itemsize
        self.casts = self.offload or self.compute != self.dtype.itemsize
        self.live: Counter[tuple[str, int]] = Counter()
        self.sharded_gradients = 0
        self.buffer: int | None = None  # the unit whose gather buffer forward still holds
        self.scattered: int | None = None  # the unit whose scatter buffer backward still holds
        self.blocks = [i for i, unit in enumerate(self.units) if i and unit]
        self.shards = self.elements_of_shards()
        self.forward()
        self.backward()

    def elements_of_shards(self) -> list[int]:
        """Elements of each unit's padded shard; blocks are often the same list of shapes."""
        known = {id(unit): shard_of(unit, self.ranks) for unit in self.units}
        return [known[id(unit)] for unit in self.units]

    @property
    def largest(self) -> Moment:
        """The moment with the most bytes in full-size pieces."""
        return max(self.moments, key=lambda moment: moment.bytes)

    @property
    def at_the_loss(self) -> Moment:
        """Between forward and backward, when activations are largest."""
        return next(moment for moment in self.moments if moment.event == FORWARD_ENDS)

    def forward(self) -> None:
        """Gather the root and keep it; gather each block, compute, free it."""
        for index in ([0] if self.units[0] else []) + self.blocks:
            self.gather(index, "forward")
            self.copy_out(index, "forward")
            self.free_buffer()
            self.buffer = index
            if index:
                self.reshard(index)
        self.free_buffer()
        self.moment(FORWARD_ENDS)

    def backward(self) -> None:
        """From the last block on; the next one is gathered before this one computes."""
        self.gradients(0, self.units[0][self.root_first :], "the root's last part")
        order = self.blocks[::-1]
        if order and self.reshard_to:
            self.gather(order[0], "backward")
        for index, following in zip(order, [*order, None][1:], strict=True):
            if self.reshard_to:
                self.copy_out(index, "backward")
                self.live.pop(("gather buffers", index), None)
                self.live.pop(("resharded", index), None)
                if following is not None:
                    self.gather(following, "backward")
            self.gradients(index, self.units[index], f"block {index}")
            self.scatter(index)
        if self.units[0]:
            self.gradients(0, self.units[0], "the root")
            self.scatter(0)
        self.live.clear()
        self.moment("backward ends")

    def gather(self, index: int, when: str) -> None:
        """All-gather a unit into its flat buffer."""
        whole = self.ranks * self.shards[index] * self.compute
        shared = self.reshard_to if when == "backward" else self.ranks
        if self.ranks == 1:
            return
        if self.casts and shared == self.ranks:
            self.live["casts", index] = whole // self.ranks
        self.live["gather buffers", index] = whole
        self.moment(f"all-gather {name(index)}")
        self.live.pop(("casts", index), None)
        self.send("all_gather_into_tensor", when, index, whole // shared, whole, shared)

    def copy_out(self, index: int, when: str) -> None:
        """Copy the parameters of a unit out of the buffer; then the unit can compute."""
        self.live["gathered", index] = self.ranks * self.shards[index] * self.compute
        self.moment(f"{name(index)} is ready for {when}")

    def free_buffer(self) -> None:
        """Free the buffer that forward has kept since the last all-gather."""
        self.live.pop(("gather buffers", self.buffer), None)
        self.buffer = None

    def reshard(self, index: int) -> None:
        """After a block's forward: free it, keep a part of it, or keep it all."""
        if not self.reshard_to:
            return
        if self.reshard_to < self.ranks:
            self.live["resharded", index] = self.live["gathered", index] // self.reshard_to
            self.moment(f"{name(index)} is sharded over {self.reshard_to} ranks")
        del self.live["gathered", index]

    def gradients(self, index: int, shapes: Unit, what: str) -> None:
        """Autograd has made gradients, unsharded and without padding, in the compute dtype."""
        if shapes:
            self.live["gradients", index] = sum(map(prod, shapes)) * self.compute
            self.moment(f"gradients of {what}")

    def scatter(self, index: int) -> None:
        """Free the unit, copy its gradients into a flat buffer, free them, reduce-scatter."""
        whole = self.ranks * self.shards[index] * self.reduce
        del self.live["gathered", index]
        self.live.pop(("scatter buffers", self.scattered), None)
        self.live["scatter buffers", index] = whole
        self.moment(f"reduce-scatter {name(index)}")
        del self.live["gradients", index]
        self.scattered = index
        self.sharded_gradients += self.shards[index] * self.dtype.itemsize
        shard = self.shards[index] * self.reduce
        if self.ranks > 1:
            self.send("reduce_scatter_tensor", "backward", index, whole, shard, self.ranks)
        if self.replicas > 1:
            self.send("all_reduce", "backward", index, shard, shard, self.replicas, self.ranks)

    def moment(self, event: str) -> None:
        """Record the current pieces."""
        self.moments.append(Moment(event, dict(self.live), self.sharded_gradients))

    def send(
        self, op: str, when: str, unit: int, given: int, received: int, ranks: int, stride: int = 1
    ) -> None:
        """Record a call."""
        self.messages.append(Message(op, when, unit, given, received, ranks, stride))


def reshard_to(reshard_after_forward: bool | int, ranks: int) -> int:
    """Over how many ranks a block is cut after its forward; 0 if it stays whole.

    As in `fully_shard`: True means all ranks, False and 1 none; another number must divide them.
    """
    number = reshard_after_forward
    if number is True:
        return ranks
    if number is False or number == 1:
        return 0
    if number < 1 or ranks % number:
        raise ValueError(
            f"reshard_after_forward={number} does not divide {ranks} ranks evenly; "
            f"take {', '.join(map(str, divisors(ranks)))}, True or False."
        )
    return number


def divisors(number: int) -> list[int]:
    """Numbers above 1 that divide `number`."""
    return [part for part in range(2, number + 1) if number % part == 0]


def name(index: int) -> str:
    """The name of a unit."""
    return f"block {index}" if index else "the root"
