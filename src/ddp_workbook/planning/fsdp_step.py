"""One training step of FSDP2 on one rank: what is whole when, and what is sent.

Follows torch 2.13's `torch/distributed/fsdp/_fully_shard` (`_fsdp_param_group.py` has the order,
`_fsdp_collectives.py` the buffers); tests compare it with real steps. Surprising facts:

- An all-gather fills one flat buffer, then each parameter is copied out of it. In forward the
  buffer of one unit is freed only when the next one is ready, so for a moment there are two.
- In backward the next unit is gathered before the current one computes (prefetching).
- The root stays whole from the first forward moment to the end of backward.
- A reduce-scatter's input, again a flat buffer, is kept until the next unit's gradients are ready.

Left out is the cast of a shard that `param_dtype` and CPU offload make before each all-gather: it
is gone before the gradients come, which take more unless neighbouring units differ very much.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from math import prod
from typing import NamedTuple

import torch

from ddp_workbook.planning.shards import Units, shard_of

FLOAT = torch.float32
Pieces = dict[tuple[str, int], int]  # (kind, index of the unit) -> bytes


class Message(NamedTuple):
    """One call of one rank: `bytes` handed in, and `received`, as in `record_collectives`."""

    op: str
    when: str  # "forward", "backward" or "optimizer step"
    unit: int | None  # index of the unit; None if the call belongs to no unit
    bytes: int
    received: int
    ranks: int  # in the group
    stride: int = 1  # from one member's rank to the next: HSDP's replicas are `shards` apart


@dataclass(frozen=True)
class FsdpStep:
    """A step, forward and backward, of rank 0 in a group of `ranks`; see `pieces` and `messages`.

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
    root_first: int = 0

    def __post_init__(self) -> None:
        reshard_to(self.reshard_after_forward, self.ranks)  # or ValueError

    @cached_property
    def shards(self) -> list[int]:
        """Elements of each unit's padded shard; blocks are often the same list of shapes."""
        known = {id(unit): shard_of(unit, self.ranks) for unit in self.units}
        return [known[id(unit)] for unit in self.units]

    @property
    def order(self) -> list[int]:
        """The units that have parameters, as forward enters them."""
        return [index for index, unit in enumerate(self.units) if unit]

    @cached_property
    def largest(self) -> Pieces:
        """The full-size pieces at the moment when they take the most bytes."""
        return max([*self.forward(), *self.backward()], key=lambda live: sum(live.values()))

    @property
    def at_the_loss(self) -> Pieces:
        """Between forward and backward, when activations are largest."""
        return self.gathered(0) | self.between(self.order)

    def gathered(self, index: int) -> Pieces:
        """A unit's parameters, ready to compute with."""
        compute = (self.param_dtype or self.dtype).itemsize
        return {("gathered", index): self.ranks * self.shards[index] * compute}

    def buffer(self, index: int) -> Pieces:
        """The flat buffer of a unit's all-gather; one rank has none."""
        size = self.gathered(index)["gathered", index]
        return {("gather buffer", index): size} if self.ranks > 1 else {}

    def gradients(self, index: int, first: int = 0) -> Pieces:
        """A unit's gradients as autograd made them, without padding, but for the `first` ones."""
        compute = (self.param_dtype or self.dtype).itemsize
        size = sum(map(prod, self.units[index][first:])) * compute
        return {("gradients", index): size} if size else {}

    def scattered(self, index: int) -> Pieces:
        """The flat buffer of a unit's reduce-scatter."""
        reduce = (self.reduce_dtype or self.param_dtype or self.dtype).itemsize
        return {("scatter buffer", index): self.ranks * self.shards[index] * reduce}

    def between(self, blocks: list[int]) -> Pieces:
        """What blocks leave from their forward to their backward: all, a part, or nothing."""
        number = reshard_to(self.reshard_after_forward, self.ranks)
        left: Pieces = {}
        for index in blocks:
            whole = self.gathered(index)
            if index and not number:
                left |= whole
            elif index and number < self.ranks:
                left["resharded", index] = whole["gathered", index] // number
        return left

    def forward(self) -> Iterator[Pieces]:
        """Each unit as it is ready to compute, beside the buffer of the one before."""
        for done, index in enumerate(self.order):
            before = self.order[:done]
            buffers = self.buffer(before[-1]) if before else {}
            left = self.gathered(0) if before and not before[0] else {}
            yield self.between(before) | left | buffers | self.buffer(index) | self.gathered(index)

    def backward(self) -> Iterator[Pieces]:
        """From the last block to the root: a unit has its gradients, and then reduce-scatters."""
        blocks = [index for index in self.order if index][::-1]
        root = self.gathered(0) if self.units[0] else {}
        early = self.gradients(0, self.root_first)
        scattered: Pieces = {}
        number = reshard_to(self.reshard_after_forward, self.ranks)
        for done, index in enumerate(blocks):
            left = self.between(blocks[done + 1 :]) | root | early
            if number:  # gathered again, copied out, and the next one's buffer filled
                again = self.between([index]) | self.buffer(index) | self.gathered(index)
                yield left | again | scattered
                for following in blocks[done + 1 : done + 2]:
                    left |= self.buffer(following)
            left |= self.gradients(index)
            yield left | self.gathered(index) | scattered
            scattered = self.scattered(index)
            yield left | scattered
        if self.units[0]:
            yield root | self.gradients(0) | scattered
            yield self.gradients(0) | self.scattered(0)

    @cached_property
    def messages(self) -> list[Message]:
        """The calls in order, on rank 0."""
        if self.ranks == 1 and self.replicas == 1:
            return []
        number = reshard_to(self.reshard_after_forward, self.ranks)
        blocks = [index for index in self.order if index][::-1]
        calls = [self.gather(index, "forward", self.ranks) for index in self.order]
        gathers = [self.gather(index, "backward", number) for index in blocks] if number else []
        calls += gathers[:1]
        for index, ahead in zip_longest(blocks, gathers[1:]):
            calls += [ahead] if ahead else []
            calls += self.reduce(index)
        calls += self.reduce(0) if self.units[0] else []
        return [call for call in calls if call.ranks > 1]

    def gather(self, index: int, when: str, ranks: int) -> Message:
        """The all-gather of a unit, over all ranks or those that share it after forward."""
        whole = self.gathered(index)["gathered", index]
        return Message("all_gather_into_tensor", when, index, whole // ranks, whole, ranks)

    def reduce(self, index: int) -> list[Message]:
        """A unit's reduce-scatter, and for HSDP the all-reduce among the replicas."""
        whole = self.scattered(index)["scatter buffer", index]
        shard = whole // self.ranks
        return [
            Message("reduce_scatter_tensor", "backward", index, whole, shard, self.ranks),
            Message("all_reduce", "backward", index, shard, shard, self.replicas, self.ranks),
        ]


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
        divisors = [part for part in range(2, ranks + 1) if ranks % part == 0]
        raise ValueError(
            f"reshard_after_forward={number} does not divide {ranks} ranks evenly; "
            f"take {', '.join(map(str, divisors))}, True or False."
        )
    return number


def in_words(pieces: Pieces) -> dict[str, int]:
    """The pieces with their names: "block 3, gathered" and so on."""
    names = {index: f"block {index}" if index else "the root" for _, index in pieces}
    return {f"{names[index]}, {kind}": size for (kind, index), size in pieces.items()}
