"""Chapter 05: one flag as an object and as a number, the order of two calls, and five mistakes."""

import warnings
from io import StringIO

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor

from manyranks.errors import RankFailed
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import launch, run_ranks
from manyranks.launcher.process_group import set_up
from manyranks.recording.collectives import record_collectives
from manyranks.recording.timing import time_step


def as_object() -> bool:
    """Whether all ranks have finished; any object that can be pickled would do."""
    everyone: list = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {"finished": False})
    return all(flag["finished"] for flag in everyone)


def as_number(device: torch.device) -> bool:
    """The same, as one float: how many ranks have finished."""
    count = torch.zeros(1, device=device)
    dist.all_reduce(count)
    return count.item() == dist.get_world_size()


def on_the_wire() -> pd.DataFrame:
    """The collectives that tell rank 0 the flag, in both ways, and their bytes on rank 0."""
    wire = record_collectives(share_flag_both_ways, ranks=2)
    rows = wire[wire["rank"] == 0].assign(way=["as an object", "as an object", "as a number"])
    columns = {"bytes": "bytes handed in", "received": "bytes received"}
    return rows[["way", "op", "dtype", *columns]].rename(columns=columns)


def milliseconds(repeats: int = 40) -> pd.DataFrame:
    """Each way's fastest call on two ranks, timed on the slower rank of that call."""
    rank_0, rank_1 = launch(seconds_of_both, repeats, ranks=2)
    slower = [
        min(max(pair) for pair in zip(*both, strict=True))
        for both in zip(rank_0, rank_1, strict=True)
    ]
    rows = [
        (way, f"{seconds * 1e3:.2f}")
        for way, seconds in zip(("as an object", "as a number"), slower, strict=True)
    ]
    return pd.DataFrame(rows, columns=["way", "milliseconds"])


def share_flag_both_ways() -> None:
    """In a rank: the flag as an object, then as a number."""
    device = set_up(bare=False)
    as_object()
    as_number(device)


def seconds_of_both(repeats: int) -> list[list[float]]:
    """In a rank: seconds of each call, by way."""
    device = set_up(bare=False)
    return [time_step(way, repeats=repeats) for way in (as_object, lambda: as_number(device))]


def sums_in_another_order() -> tuple[list[Tensor], list[Tensor]]:
    """In a rank: tensors a and b before and after an all-reduce of each; rank 1 takes b first."""
    device, place = set_up(bare=False), 10 ** dist.get_rank()
    a, b = torch.tensor([1.0 * place], device=device), torch.tensor([2.0 * place], device=device)
    before = [a.clone(), b.clone()]
    for tensor in (b, a) if dist.get_rank() == 1 else (a, b):
        dist.all_reduce(tensor)
    return before, [a, b]


def in_another_order() -> dict[str, list[tuple[list[Tensor], list[Tensor]]]]:
    """By a name for it: what each of two ranks has before and after `sums_in_another_order`."""
    return {"rank 1 takes b, then a": launch(sums_in_another_order, ranks=2)}


# Five mistakes, and what you read if you make them


KINDS = (
    "shapes differ",
    "dtypes differ",
    "no such source",
    "source not in the group",
    "rank not in the group",
)


def make_mistake(kind: str, detail: bool) -> list:
    """In a rank: make one mistake; returns what the rank's tensor then holds, and warnings."""
    dist.set_debug_level(dist.DebugLevel.DETAIL if detail else dist.DebugLevel.OFF)
    device, rank = set_up(bare=False), dist.get_rank()
    mine = torch.arange(1.0, 3.0, device=device) * 10**rank
    alone = dist.new_group([0])
    if kind == "shapes differ":
        dist.all_reduce(torch.ones(4 + rank, device=device))
    if kind == "dtypes differ":
        mine = mine.int() if rank == 1 else mine
        dist.all_reduce(mine)
    if kind == "no such source":
        dist.broadcast(mine, src=7)
    if kind == "source not in the group" and rank == 0:
        dist.broadcast(mine, src=1, group=alone)
    if kind == "rank not in the group":
        with warnings.catch_warnings(record=True) as records:
            dist.all_reduce(mine, group=alone)
        return [mine.tolist(), *(str(record.message) for record in records)]
    return mine.tolist()


def error_table(*kinds: str) -> pd.DataFrame:
    """Each mistake on two ranks: what you read without DebugLevel.DETAIL, and with it."""
    rows = [(kind, _read(kind, False), _read(kind, True)) for kind in kinds or KINDS]
    return pd.DataFrame(rows, columns=["mistake", "what you read", "with DETAIL"])


def _read(kind: str, detail: bool) -> str:
    """What rank 1 returned, or what the report says."""
    try:
        ranks = run_ranks(
            Call(make_mistake, (kind, detail), {}), 2, timeout=5, quiet=True, output=StringIO()
        )
        return f"no error; rank 1 returns {ranks[1]}"
    except RankFailed as error:
        if detail and "aspects" in error.reason:
            return error.reason.rpartition("following aspects:")[2].strip().removeprefix("Tensor ")
        title, advice = str(error).splitlines()[0], str(error).partition("look at")[2]
        return title.partition(" <")[0].rstrip(".") + "." + advice
