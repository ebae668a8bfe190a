"""Chapter 05: the ring, round by round, and how long a collective of a given size takes.

The model behind the times is Hockney's (1994), known as alpha-beta: a message of S bytes takes
alpha + beta * S seconds. alpha is the latency, what an empty message takes; 1 / beta is the
bandwidth. At the size alpha / beta, the knee, both parts cost the same.

The workers run in ranks, so this module imports no more than those need, and draws nothing.
"""

import math
import time
from collections.abc import Callable, Sequence
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from ddp_workbook.exercises.ring_all_reduce import ring_all_reduce
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.process_group import set_up
from ddp_workbook.recording.timing import TimingError, synchronise

# Not reduce_scatter: gloo builds it from whole all-reduces, so its time would teach a wrong thing.
OPS = ("all_reduce", "all_gather", "broadcast")
SIZES = tuple(4**power for power in range(4, 12))  # bytes: 256 to 4 Mi
COLUMNS = ["op", "ranks", "bytes", "round", "seconds"]


# The ring


def ring_worker(numbers: int) -> float:
    """In a rank: one ring all-reduce of so many float32, all 1; returns the first sum."""
    vector = torch.ones(numbers, device=set_up(bare=False))
    ring_all_reduce(vector)
    return vector[0].item()


def frames_worker() -> list[tuple[int | None, list[float]]]:
    """In a rank: (piece just sent, what is held) at the start and after each round.

    Rank r starts with 1, 2, 3, ... times 10 ** r, so that a sum shows whose numbers are in it. As
    many numbers as ranks, so that a piece is one number. A round begins with its send: what is held
    then is what the round before has left.
    """
    device, isend = set_up(bare=False), dist.isend
    vector = torch.arange(1, dist.get_world_size() + 1, device=device) * 10 ** dist.get_rank()
    sent, held = [None], []

    def watched(piece: torch.Tensor, *args, **kwargs) -> dist.Work | None:
        held.append(vector.tolist())
        sent.append(piece.storage_offset())
        return isend(piece, *args, **kwargs)

    with patch.object(dist, "isend", watched):
        ring_all_reduce(vector)
    return list(zip(sent, [*held, vector.tolist()], strict=True))


# Time against size


def time_against_size(
    ops: Sequence[str] = OPS,
    ranks: Sequence[int] = (2, 4),
    sizes: Sequence[int] = SIZES,
    rounds: int = 7,
) -> pd.DataFrame:
    """Seconds of each collective at each size: a table of op, ranks, bytes, round, seconds.

    `bytes` is the size of what every rank has in the end (each rank's part of an all_gather is
    bytes / ranks). A timing begins behind a barrier and is that of the slowest rank. The rounds
    take all ops and sizes in turn; the first one warms up and is left out. Raises TimingError for
    an unknown op, and for sizes that are no positive multiples of 4 bytes for each rank.
    """
    _check(ops, ranks, sizes, rounds)
    tables = []
    for count in ranks:
        of_ranks = run_ranks(
            Call(seconds_of, (list(ops), list(sizes), rounds), {}), count, quiet=True
        )
        slowest = np.max(of_ranks, axis=0)  # [round, op, size]
        index = pd.MultiIndex.from_product(
            [range(1, rounds + 1), ops, [count], sizes], names=["round", "op", "ranks", "bytes"]
        )
        tables.append(pd.DataFrame({"seconds": slowest[1:].ravel()}, index=index).reset_index())
    return pd.concat(tables, ignore_index=True)[COLUMNS]


def seconds_of(ops: list[str], sizes: list[int], rounds: int) -> list:
    """In a rank: seconds as [round][op][size]; the warm-up round comes first."""
    device = set_up(bare=False)
    steps = [[_call(op, size, device) for size in sizes] for op in ops]
    return [[[_seconds(step, device) for step in row] for row in steps] for _ in range(rounds + 1)]


def fit(frame: pd.DataFrame) -> pd.DataFrame:
    """For each op and number of ranks: latency (s), bandwidth (bytes/s) and knee (bytes).

    The line fits the fastest rounds with the least squares of *relative* errors, so that a small
    message counts as much as a large one. Neither part is negative: where the times do not grow
    with the size, bandwidth and knee are infinite. Raises TimingError for a table without two
    sizes.
    """
    rows = []
    for (op, ranks), part in fastest(frame).groupby(["op", "ranks"], sort=False):
        if part["bytes"].nunique() < 2:
            raise TimingError(f"A line needs two sizes; {op} on {ranks} ranks has one.")
        alpha, beta = _line(part["bytes"].to_numpy(float), part["seconds"].to_numpy(float))
        rate, knee = (1 / beta, alpha / beta) if beta > 0 else (math.inf, math.inf)
        rows.append((op, ranks, alpha, rate, knee))
    return pd.DataFrame(rows, columns=["op", "ranks", "latency", "bandwidth", "knee"])


def fastest(frame: pd.DataFrame) -> pd.DataFrame:
    """The fastest round for each op, number of ranks and size: what else runs can only add time."""
    missing = {"op", "ranks", "bytes", "seconds"} - set(getattr(frame, "columns", ()))
    if missing:
        raise TimingError(
            f"This is no table of time against size: no column {', '.join(sorted(missing))}. "
            "time_against_size() makes one."
        )
    if frame.empty:
        raise TimingError("This table holds no timings.")
    keys = ["op", "ranks", "bytes"]
    return frame.groupby(keys, sort=False, as_index=False)["seconds"].min()


def _call(op: str, size: int, device: torch.device) -> Callable[[], object]:
    whole = torch.ones(size // 4, device=device)
    if op == "all_gather":
        part = torch.ones(len(whole) // dist.get_world_size(), device=device)
        # torch 2.13 renamed it, and warns of the old name
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(whole, part)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, src=0)
    return lambda: dist.all_reduce(whole, dist.ReduceOp.MAX)  # a sum would grow to infinity


def _seconds(step: Callable[[], object], device: torch.device) -> float:
    dist.barrier()  # together, or who came early would count its waiting
    synchronise(device)
    begun = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - begun


def _line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """(alpha, beta) >= 0 with the least sum of ((alpha + beta * size) / seconds - 1) ** 2."""
    parts = np.stack([1 / seconds, sizes / seconds], axis=1)
    alpha, beta = np.linalg.lstsq(parts, np.ones(len(sizes)), rcond=None)[0]
    if beta < 0:
        return float(parts[:, 0].sum() / (parts[:, 0] ** 2).sum()), 0.0
    if alpha < 0:
        return 0.0, float(parts[:, 1].sum() / (parts[:, 1] ** 2).sum())
    return float(alpha), float(beta)


def _check(ops: Sequence[str], ranks: Sequence[int], sizes: Sequence[int], rounds: int) -> None:
    if not ops or not ranks or not sizes or not isinstance(rounds, int) or rounds < 1:
        raise TimingError("Give at least one op, number of ranks, size and round.")
    for op in ops:
        if op not in OPS:
            raise TimingError(f"{op!r} is not measured here. There are {', '.join(OPS)}.")
    least = 4 * math.lcm(*ranks)
    for size in sizes:
        if not isinstance(size, int) or size < 1 or size % least:
            raise TimingError(
                f"{size!r} bytes cannot be cut for {', '.join(map(str, ranks))} ranks. Take "
                f"multiples of {least}: float32 numbers, equally many on each rank."
            )
