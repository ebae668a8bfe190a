"""Bytes on one rank, by part, for every strategy, from the shapes of the parameters only.

Shapes come in units, see `shards`. Every function returns a Ledger of rank 0, which never has fewer
rows than another rank. Not included: the allocator's rounding and fragmentation, the CUDA context,
NCCL's own buffers, and the temporary tensors of the optimizer's step.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from ddp_workbook.planning.fsdp_step import FLOAT, FsdpStep
from ddp_workbook.planning.shards import Units, numel, shard_numel, shard_of, zero_1_parts

ADAMW = 2  # tensors of a parameter's size that it keeps: exp_avg and exp_avg_sq
MOMENTUM = 1
SGD = 0
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
class Ledger:
    """Bytes on one rank, by part.

    parameters, gradients, optimizer
        What the rank keeps between steps: whole tensors or its shard, including padding.
    unsharded
        Full-size pieces at the moment with the most of them: parameters gathered to compute,
        flat buffers of all-gather and reduce-scatter, gradients before they are scattered.
    buckets
        DDP's: a second copy of the gradients (none with `gradient_as_bucket_view=True`).
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
    def kept(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def host(self) -> int:
        """Bytes in the host's memory."""
        return self.kept if self.offloaded else 0

    @property
    def device(self) -> int:
        """Bytes on the device."""
        return self.total - self.host

    @property
    def total(self) -> int:
        """Bytes of all parts, on the device or on the host."""
        return self.kept + self.unsharded + self.buckets + self.copies + self.activations


def one_process(units: Units, *, dtype: torch.dtype = FLOAT, states: int = ADAMW) -> Ledger:
    """A single process: it holds everything once and sends nothing."""
    whole = numel(units) * dtype.itemsize
    return Ledger(whole, whole, states * whole + counters(units, states))


def ddp(
    units: Units,
    *,
    dtype: torch.dtype = FLOAT,
    states: int = ADAMW,
    gradient_as_bucket_view: bool = False,
) -> Ledger:
    """DistributedDataParallel: every rank holds everything, whatever the number of ranks."""
    alone = one_process(units, dtype=dtype, states=states)
    return replace(alone, buckets=0 if gradient_as_bucket_view else alone.gradients)


def zero_1(
    units: Units,
    ranks: int,
    rank: int = 0,
    *,
    dtype: torch.dtype = FLOAT,
    states: int = ADAMW,
    gradient_as_bucket_view: bool = False,
) -> Ledger:
    """DDP with ZeroRedundancyOptimizer: a rank has the optimizer state of its tensors only."""
    whole = ddp(units, dtype=dtype, gradient_as_bucket_view=gradient_as_bucket_view)
    mine = [zero_1_parts(units, ranks)[rank]]
    return replace(whole, optimizer=states * numel(mine) * dtype.itemsize + counters(mine, states))


def fully_sharded(
    units: Units, ranks: int, rank: int = 0, *, offload: bool = False, **policies: Any
) -> Ledger:
    """`fully_shard` on each unit: a rank keeps 1/N of everything, and whole units for a moment.

    With HSDP `ranks` are those that share one model, whatever the number of copies: more replicas
    save no memory. `offload` is CPUOffloadPolicy, `policies` are those of `FsdpStep`.
    """
    return of_step(FsdpStep(units, ranks, **policies), rank, offload=offload)


def of_step(step: FsdpStep, rank: int = 0, *, offload: bool = False) -> Ledger:
    """The ledger of a step of FSDP2 with AdamW.

    Parameters and gradients are stored with padding, optimizer state without it, so that depends
    on the rank.
    """
    units, ranks, size = step.units, step.ranks, step.dtype.itemsize
    stored = sum(shard_of(unit, ranks) for unit in units) * size
    mine = sum(shard_numel(shape, ranks, rank) for unit in units for shape in unit)
    return Ledger(
        parameters=stored,
        gradients=stored,
        optimizer=ADAMW * mine * size + counters(units, ADAMW),
        unsharded=sum(step.largest.values()),
        offloaded=offload,
    )


def counters(units: Units, states: int) -> int:
    """Bytes of AdamW's step counters: one for each tensor, even for an empty shard."""
    return STEP * sum(map(len, units)) if states == ADAMW else 0
