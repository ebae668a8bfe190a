"""Bytes on one rank, by part, for every strategy, from the shapes of the parameters only.

Shapes come in units, see `shards`. Every function returns a Ledger of rank 0, which never has fewer
rows than another rank. Not included: the allocator's rounding and fragmentation, the CUDA context,
NCCL's own buffers, and the temporary tensors of the optimizer's step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from manyranks.planning.shards import Units, numel, of_each, shard_of, zero_1_parts

FLOAT, HALF = torch.float32, torch.bfloat16
ADAMW = 2  # tensors of a parameter's size that it keeps: exp_avg and exp_avg_sq
STEP = 4  # bytes: AdamW keeps a float32 counter of steps for each parameter tensor
PARTS = (
    "parameters",
    "gradients",
    "optimizer",
    "unsharded",
    "buckets",
    "copies",
    "activations",
)


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one rank, by part.

    parameters, gradients, optimizer
        What the rank keeps between steps: whole tensors or its shard, including padding.
    unsharded
        Full-size pieces at the moment with the most of them: parameters gathered to compute,
        flat buffers of all-gather and reduce-scatter, gradients before they are scattered.
    buckets
        DDP's: a second copy of the gradients.
    copies
        Weights in another dtype that autocast keeps from forward to backward.
    activations
        What forward saves for backward.
    offloaded
        Whether parameters, gradients and optimizer state are in the host's memory.

    The parts do not all peak at the same moment, so `device` is a bound that a step stays below.
    """

    parameters: int
    gradients: int
    optimizer: int
    unsharded: int = 0
    buckets: int = 0
    copies: int = 0
    activations: int = 0
    offloaded: bool = False

    @property
    def model_states(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def host(self) -> int:
        """Bytes in the host's memory."""
        return self.model_states if self.offloaded else 0

    @property
    def device(self) -> int:
        """Bytes on the device."""
        return self.total - self.host

    @property
    def total(self) -> int:
        """Bytes of all parts, on the device or on the host."""
        return self.model_states + self.unsharded + self.buckets + self.copies + self.activations


@dataclass(frozen=True)
class Policy:
    """What `fully_shard` is told, and how many of the root's parameters are used before the rest.

    `param_dtype` and `reduce_dtype` are those of MixedPrecisionPolicy; None means `dtype`, that of
    the shards. The gradients of the root's first parameters come last.
    """

    reshard_after_forward: bool | int = True
    dtype: torch.dtype = FLOAT
    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    root_first: int = 0

    @property
    def compute(self) -> int:
        """Bytes of a number that is gathered and computed with."""
        return (self.param_dtype or self.dtype).itemsize

    @property
    def reduce(self) -> int:
        """Bytes of a number in a reduce-scatter."""
        return (self.reduce_dtype or self.param_dtype or self.dtype).itemsize

    def reshard_to(self, ranks: int) -> int:
        """Over how many ranks a unit is cut after its forward; 0 if it stays whole.

        As in `fully_shard`: True means all ranks, False and 1 none. Raises ValueError for another
        number that does not divide them.
        """
        number = self.reshard_after_forward
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


def one_process(units: Units, dtype: torch.dtype = FLOAT) -> MemoryEstimate:
    """A single process: it holds everything once and sends nothing."""
    whole = numel(units) * dtype.itemsize
    return MemoryEstimate(whole, whole, ADAMW * whole + counters(units))


def ddp(units: Units, dtype: torch.dtype = FLOAT) -> MemoryEstimate:
    """DistributedDataParallel: every rank holds everything, whatever the number of ranks."""
    alone = one_process(units, dtype)
    return replace(alone, buckets=alone.gradients)


def zero_1(units: Units, ranks: int, rank: int = 0) -> MemoryEstimate:
    """DDP with ZeroRedundancyOptimizer: a rank has the optimizer state of its tensors only."""
    mine = [zero_1_parts(units, ranks)[rank]]
    state = ADAMW * numel(mine) * FLOAT.itemsize + counters(mine)
    return replace(ddp(units), optimizer=state)


def fully_sharded(
    units: Units,
    ranks: int,
    rank: int = 0,
    *,
    policy: Policy = Policy(),
    offload: bool = False,
) -> MemoryEstimate:
    """`fully_shard` on each unit: a rank keeps 1/N of everything, and whole units for a moment.

    With HSDP `ranks` are those that share one model, whatever the number of copies: more replicas
    save no memory. `offload` is CPUOffloadPolicy.
    """
    states = sharded_states(units, ranks, rank, policy=policy, offload=offload)
    return replace(states, unsharded=sum(unsharded(units, ranks, policy).values()))


def sharded_states(
    units: Units, ranks: int, rank: int = 0, *, policy: Policy = Policy(), offload: bool = False
) -> MemoryEstimate:
    """What `fully_sharded` keeps between steps.

    Parameters and gradients are stored with padding, optimizer state without it, so that depends on
    the rank.
    """
    size = policy.dtype.itemsize
    shard_bytes = size * sum(of_each(units, lambda unit: shard_of(unit, ranks)))
    elements = of_each(units, lambda unit: shard_of(unit, ranks, rank))
    state = ADAMW * size * sum(elements) + counters(units)
    return MemoryEstimate(shard_bytes, shard_bytes, state, offloaded=offload)


def counters(units: Units) -> int:
    """Bytes of AdamW's step counters: one for each tensor, even for an empty shard."""
    return STEP * sum(map(len, units))


Pieces = dict[tuple[str, int | None], int]  # (kind, number of the unit) -> bytes


def unsharded(units: Units, ranks: int, policy: Policy) -> Pieces:
    """The full-size pieces of FSDP2 at the moment when they take the most bytes."""
    return max(moments(units, ranks, policy), key=lambda pieces: sum(pieces.values()))


def moments(units: Units, ranks: int, policy: Policy) -> Iterator[Pieces]:
    """The full-size pieces while a unit computes: its own, its neighbours' and the root's.

    From torch 2.13's `torch/distributed/fsdp/_fully_shard`; tests compare it with real steps.

    - An all-gather fills one flat buffer, then each parameter is copied out of it. In forward the
      buffer of one unit is freed only when the next one is ready, so for a moment there are two.
    - In backward the next unit's buffer is filled before the current one computes (prefetching).
    - A reduce-scatter's input, again a flat buffer, is kept until the next gradients are ready.
    - The root stays whole from the first moment of forward to the last of backward.

    Left out is the cast of a shard that `param_dtype` and CPU offload make before each all-gather.
    """
    padded = of_each(units, lambda unit: ranks * shard_of(unit, ranks))
    exact = of_each(units, lambda unit: numel([unit]))
    number, last = policy.reshard_to(ranks), len(units) - 1

    def gathered(unit: int) -> Pieces:
        return {("gathered", unit): padded[unit] * policy.compute}

    def gather_buffer(unit: int) -> Pieces:
        return {("gather buffer", unit): padded[unit] * policy.compute} if ranks > 1 else {}

    def gradients(unit: int, count: int) -> Pieces:
        return {("gradients", unit): count * policy.compute}

    def scatter_buffer(unit: int) -> Pieces:
        return {("scatter buffer", unit): padded[unit] * policy.reduce} if unit <= last else {}

    yield gathered(0) | gather_buffer(0)
    root, retained = gathered(0), 0
    early = gradients(0, numel([units[0][policy.root_first :]]))
    for unit in range(1, last + 1):
        always = root | {("left by forward", None): retained}
        yield always | gather_buffer(unit - 1) | gather_buffer(unit) | gathered(unit)
        retained += left_by_forward(padded[unit], ranks, policy)
        always |= early
        if number:  # gathered again
            so_far = {("left by forward", None): retained}
            yield always | so_far | gather_buffer(unit) | gathered(unit) | scatter_buffer(unit + 1)
        ahead = gather_buffer(unit - 1) if number and unit > 1 else {}
        always |= ahead | gradients(unit, exact[unit])
        yield always | gathered(unit) | scatter_buffer(unit + 1)
        yield always | scatter_buffer(unit)
    yield root | {("left by forward", None): retained}
    yield root | gradients(0, exact[0]) | scatter_buffer(1)
    yield gradients(0, exact[0]) | scatter_buffer(0)


def left_by_forward(elements: int, ranks: int, policy: Policy) -> int:
    """Bytes that a unit of so many elements leaves from its forward to its backward."""
    number = policy.reshard_to(ranks)
    return elements * policy.compute // (number or 1) if number < ranks else 0


def stage_pieces(units: Units, ranks: int, policy: Policy) -> dict[str, int]:
    """The full-size pieces of a pipeline rank's blocks, which stay gathered for all micro-batches.

    From torch 2.13's `PipelineStage.backward_maybe_with_nosync`: gradients are reduced once, after
    the last micro-batch. Until then FSDP2 adds them up at full size, in `reduce_dtype`; those of
    the block that has just been computed exist once more.
    """
    padded = sum(of_each(units, lambda unit: ranks * shard_of(unit, ranks)))
    exact = of_each(units, lambda unit: numel([unit]))
    return {
        "the stages, gathered": padded * policy.compute,
        "the stages, gradients added up": sum(exact) * policy.reduce,
        "a block, new gradients": max(exact) * policy.compute,
    }


def unsharded_at_loss(units: Units, ranks: int, policy: Policy) -> int:
    """Full-size bytes between forward and backward, when activations are largest."""
    root, *others = of_each(units, lambda unit: ranks * shard_of(unit, ranks))
    return root * policy.compute + sum(left_by_forward(size, ranks, policy) for size in others)
