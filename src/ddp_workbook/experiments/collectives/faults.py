"""Chapter 05: five mistakes with collectives, and what you read if you make them."""

import warnings
from io import StringIO

import pandas as pd
import torch
import torch.distributed as dist

from ddp_workbook.errors import RankFailed
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.process_group import set_up

KINDS = (
    "shapes differ",
    "dtypes differ",
    "no such source",
    "source not in the group",
    "rank not in the group",
)


def mistake(kind: str, detail: bool) -> list:
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
        with warnings.catch_warnings(record=True) as said:
            dist.all_reduce(mine, group=alone)
        return [mine.tolist(), *(str(one.message) for one in said)]
    return mine.tolist()


def what_is_read(*kinds: str) -> pd.DataFrame:
    """Each mistake on two ranks: what you read without DebugLevel.DETAIL, and with it."""
    rows = [(kind, _read(kind, False), _read(kind, True)) for kind in kinds or KINDS]
    return pd.DataFrame(rows, columns=["mistake", "what you read", "with DETAIL"])


def _read(kind: str, detail: bool) -> str:
    """What rank 1 returned, or what the report says."""
    try:
        ranks = run_ranks(
            Call(mistake, (kind, detail), {}), 2, timeout=5, quiet=True, output=StringIO()
        )
        return f"no error; rank 1 returns {ranks[1]}"
    except RankFailed as error:
        if detail and "aspects" in error.reason:
            return error.reason.rpartition("following aspects:")[2].strip().removeprefix("Tensor ")
        title, advice = str(error).splitlines()[0], str(error).partition("look at")[2]
        return title.partition(" <")[0].rstrip(".") + "." + advice
