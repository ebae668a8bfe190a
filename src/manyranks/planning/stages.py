"""A rank of a pipeline: what it holds, sends and computes, from the blocks of its stages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from manyranks.planning import formulas
from manyranks.planning.activations import bytes_at_loss, bytes_in_backward, kept_for_loss
from manyranks.planning.decoder import DecoderShape, cut_by_tensor
from manyranks.planning.formulas import MemoryEstimate, Policy
from manyranks.planning.messages import (
    Message,
    context_messages,
    expert_messages,
    fsdp_messages,
    pipeline_messages,
    tensor_messages,
)
from manyranks.planning.pipeline import GPIPE
from manyranks.planning.settings import Settings
from manyranks.planning.shards import Units, numel

# Calls that hold up the computing, by the degree that causes them.
ExposedCalls = dict[str, list[Message]]


@dataclass(frozen=True)
class RankEstimate:
    """What one rank of a pipeline has to do in a step; see `plan.Plan`."""

    ledger: MemoryEstimate
    moment: str
    whole: dict[str, int]
    messages: list[Message]


def estimate_rank(shape: DecoderShape, settings: Settings, rank: int) -> RankEstimate:
    """One rank of the pipeline: its blocks, and the embedding or the output layer at the ends."""
    pipeline, blocks = settings.stages, blocks_of_rank(shape, settings, rank)
    first, last = rank == 0, rank == pipeline.ranks - 1
    root = [*(shape.embedding if first else []), *(shape.output if last else [])]
    policy = Policy(False, formulas.FLOAT, settings.dtype, settings.reduce_dtype)
    parts = sharded_parts(shape, settings, [root], blocks)
    whole: dict[str, int] = {}
    for units, ranks, _ in parts:
        for name, size in formulas.stage_pieces(units, ranks, policy).items():
            whole[name] = whole.get(name, 0) + size
    ledger = replace(states_of(parts, policy), unsharded=sum(whole.values()))
    sizes = activations_of_rank(shape, settings, len(blocks), rank)
    moment = max(sizes, key=sizes.__getitem__)
    messages = sharded_messages(parts, policy, settings)
    outside = settings.tensor if settings.sequence_parallel else 1
    size = settings.tokens * shape.width * settings.dtype.itemsize // outside
    stride = settings.gpus // settings.pipeline
    return RankEstimate(
        replace(ledger, activations=sizes[moment]),
        moment,
        whole,
        [*messages, *pipeline_messages(size, pipeline, rank, stride)],
    )


def blocks_of_rank(shape: DecoderShape, settings: Settings, rank: int) -> list[int]:
    """The blocks of all stages of a rank."""
    return [number for stage in settings.stages.blocks(shape.layers, rank) for number in stage]


def different_ranks(shape: DecoderShape, settings: Settings) -> list[int]:
    """The ranks of the pipeline that differ from all before them, see `pipeline.Pipeline`."""
    dense = shape.experts.dense if shape.experts else ()
    return settings.stages.different_ranks(shape.layers, dense)


def operations_of_rank(shape: DecoderShape, settings: Settings, rank: int) -> float:
    """`speed.flops` of a rank's part of the model; looking up embeddings is free."""
    blocks = blocks_of_rank(shape, settings, rank)
    active = sum(shape.active_of_blocks[number] for number in blocks)
    if rank == settings.pipeline - 1:
        active += numel([shape.output])
    each = 6 * active + 12 * len(blocks) * shape.query_width * settings.sequence
    return settings.tokens * each * (8 / 6 if settings.checkpoint is True else 1)


@cache
def cut_blocks(shape: DecoderShape, tensor: int, expert_ranks: int) -> Units:
    """All blocks as one of the ranks that share them has them; equal ones are one object."""
    return cut_by_tensor(shape.units(expert_ranks=expert_ranks)[1:], tensor)


@cache
def cut_experts(shape: DecoderShape, tensor: int, expert_ranks: int) -> Units:
    """The experts of all blocks that one of the ranks that share them has."""
    experts = shape.each_block(lambda number: shape.routed(number, expert_ranks))
    return cut_by_tensor(experts, tensor)


Part = tuple[Units, int, int]  # units, ranks that shard them, from one of the ranks to the next


def sharded_parts(
    shape: DecoderShape,
    settings: Settings,
    first: Units,
    blocks: Sequence[int],
    last: Units = (),
) -> list[Part]:
    """What `fully_shard` cuts: units before the blocks, the blocks, and units after them.

    With expert parallelism, experts are cut over fewer ranks than the rest.
    """
    tensor, expert = settings.tensor, settings.expert
    rest = cut_blocks(shape, tensor, 1 if expert == 1 else 0)
    units = [*cut_by_tensor(first, tensor), *(rest[n] for n in blocks)]
    parts: list[Part] = [([*units, *cut_by_tensor(last, tensor)], settings.shards, tensor)]
    if expert > 1:
        experts = cut_experts(shape, tensor, expert)
        of_blocks = [[], *(experts[n] for n in blocks)]
        parts.append((of_blocks, settings.expert_shards, tensor * expert))
    return parts


def states_of(parts: Sequence[Part], policy: Policy, offload: bool = False) -> MemoryEstimate:
    """Parameters, gradients and optimizer state of all parts."""
    ledgers = [
        formulas.sharded_states(units, ranks, policy=policy, offload=offload)
        for units, ranks, _ in parts
    ]
    parameters, gradients, optimizer = (
        sum(getattr(ledger, part) for ledger in ledgers)
        for part in ("parameters", "gradients", "optimizer")
    )
    return MemoryEstimate(parameters, gradients, optimizer, offloaded=offload)


def sharded_messages(parts: Sequence[Part], policy: Policy, settings: Settings) -> list[Message]:
    """FSDP2's calls for all parts, once."""
    return [
        call
        for units, ranks, stride in parts
        for call in fsdp_messages(units, ranks, policy, settings.replicas, stride)
    ]


def exposed_calls(
    shape: DecoderShape, settings: Settings, blocks: Sequence[int] | range
) -> ExposedCalls:
    """The calls in a block's forward and backward whose result the next operation needs.

    Groups are numbered from the inside: the ranks of a tensor group are neighbours, then come those
    of a context or expert group, then all others that shard the model, and pipeline ranks are
    farthest from each other, as in torchtitan.
    """
    tensor, forwards = settings.tensor, 1 + (settings.checkpoint is True)
    width = settings.tokens * shape.width * settings.dtype.itemsize
    values = shape.value_width if shape.latent else shape.kv_width
    keys_and_values = settings.tokens * (shape.kv_width + values) * settings.dtype.itemsize
    experts = shape.experts
    copies = experts.active if experts else 0
    outside = tensor if settings.sequence_parallel else 1
    with_experts = [n for n in blocks if experts and n not in experts.dense]
    calls = {
        "tensor": tensor_messages(len(blocks), width, tensor, forwards),
        "context": context_messages(
            len(blocks), keys_and_values // tensor, settings.context, forwards
        ),
        "expert": expert_messages(
            len(with_experts), copies * width // outside, settings.expert, forwards
        ),
    }
    return {
        name: [
            call._replace(
                times=call.times * settings.accumulate, stride=1 if name == "tensor" else tensor
            )
            for call in of_degree
        ]
        for name, of_degree in calls.items()
    }


def activations_of_rank(
    shape: DecoderShape, settings: Settings, blocks: int, rank: int
) -> dict[str, int]:
    """Bytes of activations of a rank with so many blocks, at the moments when they may peak."""
    pipeline, tokens, saving = settings.stages, settings.tokens, settings.saving
    alive = replace(shape, layers=-(-pipeline.in_flight(rank) * blocks // pipeline.stages))
    sizes = {"backward": bytes_in_backward(alive, tokens, saving)}
    if rank == pipeline.ranks - 1:
        more = pipeline.micro_batches - 1 if pipeline.schedule == GPIPE else 0
        kept = more * kept_for_loss(shape, tokens, saving)
        sizes = {name: size + kept for name, size in sizes.items()}
        sizes["the loss"] = bytes_at_loss(alive, tokens, saving) + kept
    return sizes
