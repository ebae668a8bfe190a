"""The arguments of `plan`, and whether they make sense together."""

from dataclasses import dataclass
from typing import Any

import torch

from manyranks.planning.activations import Saving
from manyranks.planning.decoder import DecoderShape, cut_by_tensor
from manyranks.planning.formulas import FLOAT, HALF, Policy
from manyranks.planning.hardware import GPUS, Gpu
from manyranks.planning.pipeline import INTERLEAVED, ONE_F_ONE_B, Pipeline, check_pipeline
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
    pipeline: int = 1  # ranks that have some of the blocks each
    stages_per_rank: int = 1
    schedule: str = ONE_F_ONE_B
    context: int = 1  # ranks that share a sequence
    expert: int = 1  # ranks that share the experts of a block

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
        return self.gpus // (self.shards * self.tensor * self.pipeline)

    @property
    def data(self) -> int:
        """How many groups of GPUs each compute micro-batches of their own."""
        return self.gpus // (self.tensor * self.context * self.pipeline)

    @property
    def global_batch(self) -> int:
        """Sequences in a step of all GPUs."""
        return self.batch * self.accumulate * self.data

    @property
    def stages(self) -> Pipeline:
        """The pipeline."""
        return Pipeline(self.schedule, self.pipeline, self.stages_per_rank, self.accumulate)

    @property
    def expert_shards(self) -> int:
        """Ranks that share one expert: those that share the rest, over the expert degree."""
        return self.shards // self.expert

    @property
    def sharded(self) -> bool:
        """Whether `fully_shard` cuts the model."""
        return self.strategy in ("fully_shard", "HSDP")

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch, on each GPU or group of `tensor` GPUs."""
        return self.batch * self.sequence // self.context

    @property
    def saving(self) -> Saving:
        """How activations are saved."""
        return Saving(self.dtype, self.checkpoint, self.tensor, self.sequence_parallel)

    def units(self, shape: DecoderShape) -> Units:
        """The shapes of a rank's parameters before `fully_shard`, by unit."""
        units = shape.units(self.sharded and self.split_root, self.expert)
        return cut_by_tensor(units, self.tensor)

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
    heads = {"heads": shape.heads}
    if not shape.latent:
        heads["heads of keys and values"] = shape.kv_heads
    for what, number in heads.items():
        if number % tensor:
            raise PlanRefused(
                f"tensor={tensor} does not divide the {number} {what} of {shape.name}: give each "
                "rank equally many."
            )
    if gpus % tensor:
        raise PlanRefused(f"tensor={tensor} does not divide {gpus:,} GPUs: take a divisor.")
    if tensor % gpus_per_node and gpus_per_node % tensor:
        raise PlanRefused(
            f"tensor={tensor} does not fill nodes of {gpus_per_node} GPUs evenly: take a divisor "
            f"of {gpus_per_node}, since tensor parallelism needs the fast links in a node, or "
            "whole nodes."
        )
    return tensor


def count_micro_batches(
    global_batch: int | None, batch: int, ranks: int, count: int | None = None, default: int = 1
) -> int:
    """How many micro-batches make a step. Raises PlanRefused with the nearest that do."""
    if count is not None and global_batch is not None:
        raise PlanRefused("micro_batches and global_batch say the same twice: give one of them.")
    if count is not None:
        return whole_number(count, "micro_batches")
    if global_batch is None:
        return default
    total, at_once = whole_number(global_batch, "global_batch", most=10**9), batch * ranks
    if total % at_once:
        below, above = total // at_once * at_once, -(-total // at_once) * at_once
        near = " or ".join(f"{size:,}" for size in (below, above) if size)
        raise PlanRefused(
            f"global_batch={total} cannot be divided by {ranks} ranks with batch={batch} each: "
            f"take a multiple of {at_once:,}, such as {near}, or another batch."
        )
    return total // at_once


def split_of(shape: DecoderShape, gpus: int, tensor: int, sequence: int, **degrees: Any) -> dict:
    """The degrees besides `tensor`, checked. Raises PlanRefused for what cannot be, with a mend."""
    split = {name: whole_number(degrees[name], name) for name in ("pipeline", "context", "expert")}
    pipeline, context, expert = split.values()
    product = tensor * pipeline * context
    terms = f"tensor={tensor} x pipeline={pipeline} x context={context}"
    if (data := degrees["data"]) is not None:
        data = whole_number(data, "data")
        if product * data != gpus:
            raise PlanRefused(
                f"{terms} x data={data} are {product * data:,} GPUs, not {gpus:,}: take degrees "
                f"with that product, or gpus={product * data}."
            )
    if gpus % product:
        raise PlanRefused(
            f"{terms} are {product:,} GPUs, which do not divide {gpus:,}: take degrees whose "
            f"product does, or a multiple of {product:,} GPUs."
        )
    if context > 1 and sequence % (2 * context):
        near = max(1, sequence // (2 * context)) * 2 * context
        raise PlanRefused(
            f"context={context} does not cut {sequence:,} tokens into {2 * context} equal parts, "
            "two for each rank (an early and a late one, so that causal attention costs all ranks "
            f"the same): take sequence={near}, or another degree."
        )
    if expert > 1 and not shape.experts:
        raise PlanRefused(
            f"expert={expert}, but {shape.name} has no experts: leave it out, or take a model "
            'that has, such as "Mixtral 8x7B" or "DeepSeek-V3".'
        )
    if shape.experts and shape.experts.number % expert:
        raise PlanRefused(
            f"expert={expert} does not divide the {shape.experts.number} experts of {shape.name}: "
            "give each rank equally many."
        )
    if pipeline > 1 and shape.tied:
        raise PlanRefused(
            f"pipeline={pipeline}: the embedding of {shape.name} is its output layer as well, and "
            "the first and the last stage would need it. Take a model in which they are apart, "
            'such as "8B", or pipeline=1.'
        )
    return split


def default_stages(schedule: str, stages_per_rank: int | None) -> int:
    """By default interleaved stages are two on each rank, others one."""
    if stages_per_rank is None:
        return 2 if schedule == INTERLEAVED else 1
    return whole_number(stages_per_rank, "stages_per_rank", most=64)


def stages_of(
    shape: DecoderShape, pipeline: int, schedule: str, stages_per_rank: int | None, accumulate: int
) -> Pipeline:
    """The pipeline. Raises PlanRefused for one that cannot be."""
    stages = default_stages(schedule, stages_per_rank)
    result = Pipeline(schedule, pipeline, stages, accumulate)
    if pipeline > 1:
        check_pipeline(result, shape.layers, shape.name)
    elif stages_per_rank is not None or schedule != ONE_F_ONE_B:
        raise PlanRefused("schedule and stages_per_rank are for pipeline=2 or more.")
    return result


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
        for name in ("tensor", "pipeline", "context", "expert"):
            if getattr(settings, name) > 1:
                planned = "is planned with fully_shard, not with"
                raise PlanRefused(f"{name} {planned} {settings.strategy}.")
    if settings.shards % settings.context or settings.shards % settings.expert:
        name = "context" if settings.shards % settings.context else "expert"
        raise PlanRefused(
            f"{name}={getattr(settings, name)} does not divide the {settings.shards} ranks that "
            f"share the blocks of one model: take a divisor, or more GPUs"
            f"{' or shards' if settings.strategy == 'HSDP' else ''}."
        )
    number = settings.reshard_after_forward
    if settings.pipeline > 1 and (number is not False or settings.offload):
        what = "offload=True" if settings.offload else f"reshard_after_forward={number!r}"
        raise PlanRefused(
            f"{what} with pipeline={settings.pipeline} would gather the stages again for each "
            "micro-batch: leave it out. A plan with a pipeline gathers them once a step."
        )
    if not isinstance(number, int):
        raise PlanRefused(f"reshard_after_forward={number!r} is neither True, False nor a number.")
    try:
        Policy(number).reshard_to(settings.shards)
        Policy(number).reshard_to(settings.expert_shards)
    except ValueError as error:
        raise PlanRefused(str(error)) from None
