"""Chapter 05: how long a collective of a given size takes, and the line through these times.

The model behind the times is Hockney's (1994), known as alpha-beta: a message of S bytes takes
alpha + beta * S seconds. alpha is the latency, the time of an empty message; 1 / beta is the
bandwidth. At the size alpha / beta, the knee, both parts cost the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from ddp_workbook.chapters.distributed_data_parallel import pick_device
from ddp_workbook.experiments.collectives.calls import FACTORS
from ddp_workbook.experiments.collectives.every_call import all_gather_single
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.launcher.launch import launch
from manyranks.launcher.process_group import set_up
from manyranks.planning.hardware import GB, INTER_NODE_LINKS, INTRA_NODE_LINKS, MICROSECOND
from manyranks.planning.scaling import least_squares
from manyranks.recording.timing import time_step

# Not reduce_scatter: gloo builds it from whole all-reduces, so its time would mislead.
OPS = ("all_reduce", "all_gather", "broadcast")
SIZES = tuple(4**power for power in range(4, 12))  # bytes: 256 to 4 Mi
WARM_UP = 2  # rounds: DDP rebuilds its buckets after its first step
COLUMNS = ["op", "ranks", "bytes", "round", "seconds"]
KNEE = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "linestyle": "none"}


def time_against_size(
    ops: Sequence[str] = OPS,
    ranks: Sequence[int] = (2, 4),
    sizes: Sequence[int] = SIZES,
    rounds: int = 7,
) -> pd.DataFrame:
    """Seconds of each collective at each size: a table of op, ranks, bytes, round, seconds.

    `bytes` is the size of the result on every rank (in an all_gather, each rank sends
    bytes / ranks). A timing starts after a barrier and is that of the slowest rank. Each round
    measures all ops and sizes; a first round warms up and is not recorded. Raises ValueError for
    `rounds` below 1, and for sizes that are not a multiple of 4 bytes on each rank.
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; it must be 1 or more.")
    if odd := [size for size in sizes if size % (4 * math.lcm(*ranks))]:
        raise ValueError(f"{odd[0]} is not a multiple of {4 * math.lcm(*ranks)} bytes.")
    tables = []
    for count in ranks:
        of_ranks = launch(seconds_of, ops, sizes, rounds, ranks=count)
        slowest = np.max(of_ranks, axis=0)  # [round, op, size]
        index = pd.MultiIndex.from_product(
            [range(1, rounds + 1), ops, [count], sizes], names=["round", "op", "ranks", "bytes"]
        )
        tables.append(pd.DataFrame({"seconds": slowest[1:].ravel()}, index=index).reset_index())
    return pd.concat(tables, ignore_index=True)[COLUMNS]


def seconds_of(ops: Sequence[str], sizes: Sequence[int], rounds: int) -> list:
    """In a rank: seconds as [round][op][size]; the warm-up round comes first."""
    device = set_up(bare=False)
    steps = [[_call(op, size, device) for size in sizes] for op in ops]
    return [
        [[seconds_together(step, device) for step in row] for row in steps]
        for _ in range(rounds + 1)
    ]


def fit(frame: pd.DataFrame) -> pd.DataFrame:
    """For each op and number of ranks: latency (s), bandwidth (bytes/s) and knee (bytes).

    A line through the fastest rounds, by least squares of *relative* errors, so a small message
    counts as much as a large one. Neither part is negative: if the times do not grow with the size,
    bandwidth and knee are infinite. Raises ValueError for a table without two sizes.
    """
    rows = []
    for (op, ranks), part in fastest(frame).groupby(["op", "ranks"], sort=False):
        if part["bytes"].nunique() < 2:
            raise ValueError(f"A line needs two sizes; {op} on {ranks} ranks has one.")
        terms = {"alpha": np.ones(len(part)), "beta": part["bytes"]}
        alpha, beta = least_squares(terms, part["seconds"]).coefficients.values()
        rate, knee = (1 / beta, alpha / beta) if beta > 0 else (math.inf, math.inf)
        rows.append((op, ranks, alpha, rate, knee))
    return pd.DataFrame(rows, columns=["op", "ranks", "latency", "bandwidth", "knee"])


def fastest(frame: pd.DataFrame) -> pd.DataFrame:
    """The fastest round for each op, number of ranks and size: other programs can only add time."""
    keys = ["op", "ranks", "bytes"]
    return frame.groupby(keys, sort=False, as_index=False)["seconds"].min()


def bandwidths(times: pd.DataFrame) -> pd.DataFrame:
    """Algorithm and bus bandwidth at the largest size, as nccl-tests define them."""
    largest = fastest(times)
    largest = largest[largest["bytes"] == largest["bytes"].max()]
    rows = []
    for row in largest.itertuples():
        of_algorithm, factor = row.bytes / row.seconds, FACTORS[row.op][1](row.ranks)
        rows.append(
            {
                "call": row.op,
                "ranks": row.ranks,
                "milliseconds": f"{row.seconds * 1e3:.2f}",
                "algbw in MB/s": f"{of_algorithm / 1e6:.0f}",
                "factor": f"{factor:g}",
                "busbw in MB/s": f"{of_algorithm * factor / 1e6:.0f}",
            }
        )
    return pd.DataFrame(rows)


def slowdown_by_pieces(lines: pd.DataFrame, pieces: int, size: int = 2**20) -> tuple[int, int]:
    """How many times as long `pieces` all-reduces take as one of `size` bytes, on two ranks.

    By the line that was fitted, and measured.
    """
    line = _part(lines, "all_reduce", 2).iloc[0]
    small, large = (line.latency + nbytes / line.bandwidth for nbytes in (size / pieces, size))
    both = np.max(launch(seconds_of_both, pieces, size, ranks=2), axis=0)
    many, whole = both.min(axis=1)
    return round(pieces * small / large), round(many / whole)


def seconds_of_both(pieces: int, size: int, repeats: int = 3) -> list[list[float]]:
    """In a rank: seconds of `pieces` all-reduces, and of one, of `size` bytes together."""
    whole = torch.zeros(size // 4, device=set_up(bare=False))

    def many() -> None:
        for piece in whole.chunk(pieces):
            dist.all_reduce(piece)

    ways = (many, lambda: dist.all_reduce(whole))
    return [time_step(way, repeats=repeats) for way in ways]


def _part(table: pd.DataFrame, op: str, ranks: int) -> pd.DataFrame:
    return table[(table["op"] == op) & (table["ranks"] == ranks)]


def _call(op: str, size: int, device: torch.device) -> Callable[[], object]:
    whole = torch.ones(size // 4, device=device)
    if op == "all_gather":
        part = torch.ones(len(whole) // dist.get_world_size(), device=device)
        return lambda: all_gather_single(whole, part)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, src=0)
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole, dist.ReduceOp.MAX)  # a sum would grow to infinity
    raise ValueError(f"{op} is none of {', '.join(OPS)}.")


def seconds_together(step: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call that all ranks begin together: no rank counts the wait for a late one."""
    dist.barrier()
    return time_step(step, warm_up=0, repeats=1, device=device)[0]


def time_steps(steps: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step in each round, the steps in turns; all ranks begin together."""
    device = pick_device()
    turns = [
        {name: seconds_together(step, device) for name, step in steps.items()}
        for _ in range(WARM_UP + rounds)
    ]
    return {name: [turn[name] for turn in turns[WARM_UP:]] for name in steps}


@figures.house_style
def alpha_beta_plot(times: pd.DataFrame, lines: pd.DataFrame) -> figures.Picture:
    """The fastest round at each size as markers, and the fitted line; a panel an op, both axes log.

    `times` has the columns op, ranks, bytes and seconds; `lines` has for each op and number of
    ranks latency (s), bandwidth (bytes/s) and knee (bytes). On logarithmic axes
    latency + size / bandwidth is flat, then steep; a ring marks the knee between them.
    """
    of_ops = (
        fastest(times).assign(ms=lambda table: table["seconds"] * 1e3).groupby("op", sort=False)
    )
    panels = {
        op: points.pivot(index="bytes", columns="ranks", values="ms").add_suffix(" ranks")
        for op, points in of_ops
    }
    about = "Time against bytes, on logarithmic axes"
    picture = figures.lines(panels, "milliseconds", about, log="xy")
    for axes, (op, points) in zip(picture.figure.axes, panels.items(), strict=True):
        sizes = np.geomspace(points.index.min(), points.index.max(), 60)
        of_op = lines[lines["op"] == op].itertuples()
        for marks, line in zip(list(axes.lines), of_op, strict=True):
            marks.set(linestyle="none", markevery=1, markersize=6)
            colour = marks.get_color()
            axes.plot(sizes, (line.latency + sizes / line.bandwidth) * 1e3, color=colour)
            if sizes[0] <= line.knee <= sizes[-1]:
                axes.plot(line.knee, 2e3 * line.latency, **KNEE, markeredgecolor=colour)
            picture.alt += f" {op} on {line.ranks} ranks: knee at {line.knee:,.0f} bytes."
        axes.set_xticks(*_ticks(sizes), minor=False)
        axes.grid(visible=False)
    picture.axes.plot([], [], **KNEE, markeredgecolor=INK, label="knee")
    picture.update_legend()
    return picture


def _ticks(sizes: np.ndarray) -> tuple[list[int], list[str]]:
    """Powers of two within the axis, and their names."""
    names = {2**10: "1 Ki", 2**15: "32 Ki", 2**20: "1 Mi", 2**25: "32 Mi"}
    inside = {size: name for size, name in names.items() if sizes[0] <= size <= sizes[-1]}
    return list(inside), list(inside.values())


# Links between GPUs, with their sources


def links() -> pd.DataFrame:
    """A row a link: where it is, GB/s of one direction, latency, knee, and the bandwidth's source.

    The knee is the size at which latency and bytes cost the same, as for one message.
    """
    rows = [
        {
            "link": link.name,
            "between": where,
            "GB/s": f"{link.bytes_per_second / GB:g}",
            "latency in µs": f"{link.latency / MICROSECOND:g}",
            "knee in KiB": round(link.bytes_per_second * link.latency / 2**10),
            "source of the bandwidth": link.source,
        }
        for where, links in (("GPUs of a node", INTRA_NODE_LINKS), ("nodes", INTER_NODE_LINKS))
        for link in links
    ]
    return pd.DataFrame(rows)
