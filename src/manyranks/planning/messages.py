"""The calls of one training step on one rank, for DDP, ZeRO-1 and FSDP2.

Bytes are payloads of calls, as `record_collectives` counts them; `speed` converts them into the
bytes that a ring sends.
"""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import pandas as pd
import torch

from manyranks.planning.formulas import FLOAT, Policy
from manyranks.planning.pipeline import Pipeline
from manyranks.planning.shards import Shape, Units, of_each, shard_of, zero_1_parts

MIB = 2**20
FIRST_BUCKET_BYTES = 1 * MIB  # dist._DEFAULT_FIRST_BUCKET_BYTES
BUCKET_MIB = 25  # DDP's bucket_cap_mb


class Message(NamedTuple):
    """A call of one rank, `times` a step: `bytes` handed in, and `received`."""

    op: str  # all_gather, reduce_scatter, all_reduce, broadcast, all_to_all, send or recv
    when: str  # "forward", "backward" or "optimizer step"
    bytes: int
    received: int
    ranks: int  # in the group
    stride: int = 1  # from one member's rank to the next: HSDP's replicas are `shards` apart
    times: int = 1


def fsdp_messages(
    units: Units, ranks: int, policy: Policy, replicas: int = 1, stride: int = 1
) -> list[Message]:
    """FSDP2's calls: each unit is gathered in forward, and again in backward unless it stayed whole
    (as the root does); then its gradients are reduce-scattered, and with HSDP all-reduced.

    `stride` is from one of the ranks to the next: with tensor parallelism, so many share a block.
    """
    number = policy.reshard_to(ranks)
    calls = []
    for index, shard in enumerate(of_each(units, lambda unit: shard_of(unit, ranks))):
        if not shard:
            continue
        part, reduced = shard * policy.compute, shard * policy.reduce
        whole = ranks * part
        calls.append(Message("all_gather", "forward", part, whole, ranks, stride))
        if index and number:
            calls.append(Message("all_gather", "backward", whole // number, whole, number, stride))
        calls.append(Message("reduce_scatter", "backward", ranks * reduced, reduced, ranks, stride))
        calls.append(Message("all_reduce", "backward", reduced, reduced, replicas, stride * ranks))
    return [call for call in calls if call.ranks > 1]


def ddp_messages(
    units: Units,
    ranks: int,
    *,
    dtype: torch.dtype = FLOAT,
    hook_dtype: torch.dtype | None = None,
    bucket_cap_mb: float | None = None,
    root_first: int = 0,
) -> list[Message]:
    """DDP's all-reduces, one a bucket, from its second step on (the first has one bucket).

    `hook_dtype` is the dtype to which a communication hook converts a bucket.
    """
    if ranks == 1:
        return []
    sizes = ddp_buckets(gradient_order(units, root_first), dtype.itemsize, bucket_cap_mb)
    hook_itemsize = (hook_dtype or dtype).itemsize
    sizes = [size // dtype.itemsize * hook_itemsize for size in sizes]
    return [Message("all_reduce", "backward", size, size, ranks) for size in sizes]


def zero_1_messages(units: Units, ranks: int, rank: int = 0, **ddp) -> list[Message]:
    """DDP's calls, then one broadcast for each new parameter, from the rank that updated it."""
    messages = ddp_messages(units, ranks, **ddp)
    itemsize = ddp.get("dtype", FLOAT).itemsize
    for owner, part in enumerate(zero_1_parts(units, ranks) if ranks > 1 else []):
        for shape in part:
            size = prod(shape) * itemsize
            received = 0 if owner == rank else size
            messages.append(Message("broadcast", "optimizer step", size, received, ranks))
    return messages


def tensor_messages(layers: int, size: int, ranks: int, forwards: int) -> list[Message]:
    """Tensor parallelism's calls for activations of `size` bytes, `forwards` times forward.

    Two all-reduces of a block's output in each forward, and two of gradients in backward. Sequence
    parallelism makes two calls of each, an all-gather and a reduce-scatter, and as many bytes.
    Korthikanti et al., 2022, section 4.2.2.
    """
    forward = Message("all_reduce", "forward", size, size, ranks, times=2 * layers * forwards)
    backward = forward._replace(when="backward", times=2 * layers)
    return [forward, backward] if ranks > 1 else []


def context_messages(layers: int, size: int, ranks: int, forwards: int) -> list[Message]:
    """Context parallelism's calls: a rank's keys and values are `size` bytes in each layer.

    All-gathered in each forward and once more in backward, where their gradients are
    reduce-scattered. A ring sends as many bytes, one rank's at a time. Liu et al., "Ring Attention
    with Blockwise Transformers", 2023; "The Llama 3 Herd of Models", 2024, section 3.3.2.
    """
    gather = Message("all_gather", "forward", size, ranks * size, ranks, times=layers * forwards)
    again = gather._replace(when="backward", times=layers)
    scatter = Message("reduce_scatter", "backward", ranks * size, size, ranks, times=layers)
    return [gather, again, scatter] if ranks > 1 else []


def expert_messages(layers: int, size: int, ranks: int, forwards: int) -> list[Message]:
    """Expert parallelism's calls: `size` bytes of tokens, one copy for each expert they go to.

    To the experts and back, in each forward and in backward. As many tokens for each expert are
    assumed. Lepikhin et al., "GShard", 2020, section 3.2.
    """
    there = Message("all_to_all", "forward", size, size, ranks, times=2 * layers * forwards)
    back = there._replace(when="backward", times=2 * layers)
    return [there, back] if ranks > 1 else []


def pipeline_messages(size: int, pipeline: Pipeline, rank: int, stride: int) -> list[Message]:
    """What a rank of a pipeline sends and receives: `size` bytes for each micro-batch and stage.

    The last stage sends nothing in forward, the first one nothing in backward.
    """
    every = pipeline.stages * pipeline.micro_batches
    first, last = rank == 0, rank == pipeline.ranks - 1
    forward, backward = (every - pipeline.micro_batches * end for end in (last, first))
    send = Message("send", "forward", size, 0, 2, stride)
    recv = Message("recv", "forward", 0, size, 2, stride)
    calls = [
        send._replace(times=forward),
        recv._replace(times=backward),
        send._replace(when="backward", times=backward),
        recv._replace(when="backward", times=forward),
    ]
    return [call for call in calls if call.times]


def gradient_order(units: Units, root_first: int = 0) -> list[Shape]:
    """Parameters in the order in which backward makes their gradients: the last used first."""
    forward = [
        *units[0][:root_first],
        *(shape for unit in units[1:] for shape in unit),
        *units[0][root_first:],
    ]
    return forward[::-1]


def ddp_buckets(
    shapes: list[Shape], itemsize: int, bucket_cap_mb: float | None = None
) -> list[int]:
    """Bytes of each bucket: it is closed once it has reached its size, so it may be larger.

    The default is 25 MiB, except for the first, which is small so that communication starts early.
    An explicit size holds for all buckets.
    """
    size = int((bucket_cap_mb or BUCKET_MIB) * MIB)
    buckets, limit, bucket_bytes = [], size if bucket_cap_mb else FIRST_BUCKET_BYTES, 0
    for shape in shapes:
        bucket_bytes += prod(shape) * itemsize
        if bucket_bytes >= limit:
            buckets.append(bucket_bytes)
            limit, bucket_bytes = size, 0
    return buckets + ([bucket_bytes] if bucket_bytes else [])


def sum_by_kind(messages: Iterable[Message]) -> pd.DataFrame:
    """A row for each kind of call: op, when, calls, and its bytes handed in and received."""
    rows = pd.DataFrame(messages, columns=list(Message._fields)).rename(columns={"times": "calls"})
    rows[["bytes", "received"]] = rows[["bytes", "received"]].mul(rows["calls"], axis=0)
    kinds = rows.groupby(["op", "when"], sort=False, as_index=False)
    return kinds[["calls", "bytes", "received"]].sum()
