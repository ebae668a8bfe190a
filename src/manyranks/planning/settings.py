"""The arguments of `plan`, and whether they make sense together."""

from dataclasses import dataclass

import torch

from manyranks.planning.activations import Saving
from manyranks.planning.decoder import DecoderShape, cut_by_tensor
from manyranks.planning.formulas import FLOAT, HALF, Policy
from manyranks.planning.hardware import GPUS, Gpu
from manyranks.planning.shards import Units
from manyranks.planning.sizes import PlanRefused, byte_count, whole_number
from manyranks.planning.speed import Cluster

STRATEGIES = ("fully_shard", "HSDP", "DDP", "ZeRO-1")
ALIASES = {"fsdp": "fully_shard", "fsdp2": "fully_shard", "zero3": "fully_shard"}
PRECISIONS = ("bf16-reduce", "bf16", "fp32")
CHECKPOINTS: dict[str, bool | str] = {
    "true": True, "full": True, "false": False, "none": False, "selective": "selective",
}  # fmt: skip
MAX_GPUS = 2**17


@dataclass(frozen=True)
class Settings:
    """The arguments of `plan`, checked."""

    gpus: int
    memory: int
    strategy: str
    precision: str
    reshard_after_forward: bool | int
    offload: bool
    checkpoint: bool | str
    batch: int
    sequence: int
    shards: int  # ranks that share one model; the others hold copies (HSDP)
    tensor: int  # ranks that compute a block together
    sequence_parallel: bool
    split_root: bool
    accumulate: int  # micro-batches in a step
    gpu: Gpu
    cluster: Cluster

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of forward and backward."""
        return FLOAT if self.precision == "fp32" else HALF

    @property
    def reduce_dtype(self) -> torch.dtype:
        """The dtype in which gradients are added up over the ranks."""
        return HALF if self.precision == "bf16-reduce" else FLOAT

    @property
    def replicas(self) -> int:
        """How many groups of ranks hold the whole model."""
        return self.gpus // (self.shards * self.tensor)

    @property
    def sharded(self) -> bool:
        """Whether `fully_shard` cuts the model."""
        return self.strategy in ("fully_shard", "HSDP")

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch, on each GPU or group of `tensor` GPUs."""
        return self.batch * self.sequence

    @property
    def saving(self) -> Saving:
        """How activations are saved."""
        return Saving(self.dtype, self.checkpoint, self.tensor, self.sequence_parallel)

    def units(self, shape: DecoderShape) -> Units:
        """The shapes of a rank's parameters before `fully_shard`, by unit."""
        return cut_by_tensor(shape.units(self.sharded and self.split_root), self.tensor)

    def policy(self, shape: DecoderShape) -> Policy:
        """What `fully_shard` is told."""
        first = 0 if self.split_root and not shape.tied else shape.first
        kinds = self.dtype, self.reduce_dtype
        return Policy(self.reshard_after_forward, FLOAT, *kinds, root_first=first)


def memory_of(memory: str | int | None, device: Gpu) -> int:
    """The bytes that torch finds on a card which is sold with this memory; else the bytes given."""
    size = device.memory if memory is None else byte_count(memory)
    cards = [device, *GPUS]
    return next((card.capacity for card in cards if card.memory == size), size)


def tensor_of(shape: DecoderShape, tensor: int, gpus: int, gpus_per_node: int) -> int:
    """How many ranks share a block. Raises PlanRefused if heads, node or GPUs do not allow it."""
    tensor = whole_number(tensor, "tensor", most=1024)
    if shape.heads % tensor or (shape.kv_heads % tensor and not shape.latent):
        heads = f"{shape.heads} heads, {shape.kv_heads} of keys and values"
        raise PlanRefused(f"tensor={tensor} does not divide {heads}: give each rank equally many.")
    if tensor > gpus_per_node or gpus_per_node % tensor or gpus % tensor:
        raise PlanRefused(
            f"tensor={tensor} does not divide {gpus} GPUs in nodes of {gpus_per_node}: tensor "
            "parallelism needs the fast links of one node."
        )
    return tensor


def micro_batches(global_batch: int | None, batch: int, ranks: int) -> int:
    """How many micro-batches make a step. Raises PlanRefused with the nearest that do."""
    if global_batch is None:
        return 1
    total, at_once = whole_number(global_batch, "global_batch", most=10**9), batch * ranks
    if total % at_once:
        below, above = total // at_once * at_once, -(-total // at_once) * at_once
        near = " or ".join(f"{size:,}" for size in (below, above) if size)
        raise PlanRefused(
            f"global_batch={total} cannot be divided by {ranks} ranks with batch={batch} each: "
            f"take a multiple of {at_once:,}, such as {near}, or another batch."
        )
    return total // at_once


def shards_of(strategy: str, ranks: int, shards: int | None, in_node: int) -> int:
    """Over how many ranks one model is cut. Raises PlanRefused if that does not divide them."""
    if strategy != "HSDP":
        if shards is not None:
            raise PlanRefused(f'shards={shards} is for strategy="HSDP", not for "{strategy}".')
        return ranks
    shards = whole_number(min(in_node, ranks) if shards is None else shards, "shards", most=ranks)
    if ranks % shards:
        raise PlanRefused(
            f"shards={shards} does not divide {ranks} ranks: HSDP needs groups of equal size."
        )
    return shards


def check(settings: Settings) -> None:
    """Raise PlanRefused for settings that contradict each other."""
    if not settings.sharded:
        for name in ("offload", "split_root"):
            if getattr(settings, name):
                raise PlanRefused(f"{name} belongs to fully_shard; {settings.strategy} has none.")
        if settings.tensor > 1:
            raise PlanRefused(f"tensor is planned with fully_shard, not with {settings.strategy}.")
    number = settings.reshard_after_forward
    if not isinstance(number, int):
        raise PlanRefused(f"reshard_after_forward={number!r} is neither True, False nor a number.")
    try:
        Policy(number).reshard_to(settings.shards)
    except ValueError as error:
        raise PlanRefused(str(error)) from None
