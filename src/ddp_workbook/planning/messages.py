"""The calls of one training step on one rank, for DDP, ZeRO-1 and FSDP2.

FSDP2's calls come from `FsdpStep`. Bytes are payloads of calls, as `record_collectives` counts
them; `speed` converts them into the bytes that a ring sends.
"""

from collections.abc import Iterable
from math import prod

import pandas as pd
import torch

from ddp_workbook.planning.fsdp_step import FLOAT, Message
from ddp_workbook.planning.shards import Shape, Units, zero_1_parts

MIB = 2**20
FIRST_BUCKET = 1 * MIB  # dist._DEFAULT_FIRST_BUCKET_BYTES
BUCKET = 25  # DDP's bucket_cap_mb


def ddp_messages(
    units: Units,
    ranks: int,
    *,
    dtype: torch.dtype = FLOAT,
    bucket_cap_mb: float | None = None,
    root_first: int = 0,
) -> list[Message]:
    """DDP's all-reduces, one a bucket, from its second step on (the first has one bucket)."""
    if ranks == 1:
        return []
    sizes = ddp_buckets(arrival(units, root_first), dtype.itemsize, bucket_cap_mb)
    return [Message("all_reduce", "backward", None, size, size, ranks) for size in sizes]


def zero_1_messages(units: Units, ranks: int, rank: int = 0, **ddp) -> list[Message]:
    """DDP's calls, then one broadcast for each new parameter, from the rank that updated it."""
    messages = ddp_messages(units, ranks, **ddp)
    itemsize = ddp.get("dtype", FLOAT).itemsize
    for owner, part in enumerate(zero_1_parts(units, ranks) if ranks > 1 else []):
        for shape in part:
            size = prod(shape) * itemsize
            came = 0 if owner == rank else size
            messages.append(Message("broadcast", "optimizer step", None, size, came, ranks))
    return messages


def arrival(units: Units, root_first: int = 0) -> list[Shape]:
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
    size = int((bucket_cap_mb or BUCKET) * MIB)
    buckets, limit, filled = [], size if bucket_cap_mb else FIRST_BUCKET, 0
    for shape in shapes:
        filled += prod(shape) * itemsize
        if filled >= limit:
            buckets.append(filled)
            limit, filled = size, 0
    return buckets + ([filled] if filled else [])


def summed(messages: Iterable[Message]) -> pd.DataFrame:
    """A row for each kind of call: op, when, calls, and its bytes handed in and received."""
    rows = pd.DataFrame(messages, columns=list(Message._fields)).assign(calls=1)
    kinds = rows.groupby(["op", "when"], sort=False, as_index=False)
    return kinds[["calls", "bytes", "received"]].sum()
