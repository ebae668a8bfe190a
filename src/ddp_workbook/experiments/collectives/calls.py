"""Chapter 05: the family of collectives, and how many bytes a call takes in and gives out."""

from collections.abc import Callable
from inspect import signature

import pandas as pd
import torch.distributed as dist

from ddp_workbook.experiments.collectives import every_call
from manyranks.recording.collectives import record_collectives

# What the busiest of N ranks has to send or to receive, whichever is more, if all share the work. S
# is the size of the full tensor. The factors are those of NVIDIA's nccl-tests (doc/PERFORMANCE.md),
# which leaves out scatter and gather: there, only the root is as busy as this.
FACTORS: dict[str, tuple[str, Callable[[int], float]]] = {
    "broadcast": ("S", lambda n: 1),
    "scatter": ("(N - 1) / N · S, root sends", lambda n: (n - 1) / n),
    "reduce": ("S", lambda n: 1),
    "gather": ("(N - 1) / N · S, root receives", lambda n: (n - 1) / n),
    "all_reduce": ("2 (N - 1) / N · S", lambda n: 2 * (n - 1) / n),
    "all_gather": ("(N - 1) / N · S", lambda n: (n - 1) / n),
    "reduce_scatter": ("(N - 1) / N · S", lambda n: (n - 1) / n),
    "all_to_all": ("(N - 1) / N · S", lambda n: (n - 1) / n),
}


def tensor_collectives() -> list[str]:
    """Collectives on tensors: public functions that take `async_op`, without deprecated names."""
    functions = {
        name: function
        for name, function in vars(dist).items()
        if type(function) is type(tensor_collectives)
    }
    return sorted(
        name
        for name, function in functions.items()
        if "async_op" in signature(function).parameters
        and not name.startswith("_")
        and not name.endswith("_coalesced")
        and not hasattr(function, "__deprecated__")
    )


def bytes_of_calls(ranks: int = 4) -> pd.DataFrame:
    """Bytes of what ranks 0 and 1 pass to each call and get from it, recorded; and what travels.

    S is the size of the full tensor, 4 bytes for each rank. Rank 0 is the root. The last two
    columns are by formula: the most that one rank has to send or to receive, if all share the work.
    """
    wire = record_collectives(_run_every_call, ranks=ranks)
    wire["op"] = wire["op"].str.removesuffix("_single")  # all_to_all, before torch 2.13
    size, rows = 4 * ranks, []
    for name, (formula, factor) in FACTORS.items():
        cells: dict[str, str | int] = {"call": name}
        for rank in (0, 1):
            (row,) = wire[(wire["op"] == name) & (wire["rank"] == rank)].itertuples()
            gives = rank == 0 or name not in ("broadcast", "scatter")
            cells[f"rank {rank} input"] = row.bytes if gives else 0
            cells[f"rank {rank} output"] = row.received
        cells["busiest rank sends or receives"] = round(factor(ranks) * size)
        rows.append(cells | {"for N ranks": formula})
    return pd.DataFrame(rows)


def _run_every_call() -> None:
    device = every_call.setup()
    for name in FACTORS:
        every_call.COLLECTIVES[name](every_call.numbers(device))
