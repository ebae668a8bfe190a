"""Time against size: collectives measured on ranks, and the line latency + size / bandwidth.

The model is Hockney's (1994), known as alpha-beta: a message of S bytes takes alpha + beta * S
seconds. alpha is the latency, what an empty message takes; 1 / beta is the bandwidth. At the size
alpha / beta, the knee, both parts cost the same.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ddp_workbook.experiments.message_times import OPS, seconds_of
from ddp_workbook.figures.palette import rank_marker, series_colour
from ddp_workbook.figures.plots import WIDTH
from ddp_workbook.figures.style import style
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.serialization import Call
from ddp_workbook.recording.timing import TimingError

SIZES = tuple(4**power for power in range(4, 12))  # bytes: 256 to 4 Mi
DOTS = "#bdbdbd"
COLUMNS = ["op", "ranks", "bytes", "round", "seconds"]


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


@style()
def alpha_beta_plot(frame: pd.DataFrame) -> Figure:
    """Rounds as dots, the fastest as markers, the fitted line; a panel an op, logarithmic axes.

    On such axes latency + size / bandwidth is flat, then steep; the knee is the vertical line.
    """
    points, lines = fastest(frame), fit(frame)
    ops, counts = list(points["op"].unique()), list(points["ranks"].unique())
    figure = Figure((WIDTH, 3.6), layout="constrained")
    panels = figure.subplots(1, len(ops), sharey=True, squeeze=False)[0]
    sizes = np.geomspace(points["bytes"].min(), points["bytes"].max(), 60)
    for axes, op in zip(panels, ops, strict=True):
        for look, count in enumerate(counts):
            every, mine, line = (_of(table, op, count) for table in (frame, points, lines))
            colour, line = series_colour(2 * look), line.iloc[0]
            axes.plot(every["bytes"], every["seconds"] * 1e3, "o", color=DOTS, ms=2.5, zorder=1)
            marker = {"marker": rank_marker(look), "markersize": 6, "linestyle": "none"}
            axes.plot(mine["bytes"], mine["seconds"] * 1e3, **marker, color=colour)
            of_line = (line.latency + sizes / line.bandwidth) * 1e3
            axes.plot(sizes, of_line, color=colour)
            if sizes[0] <= line.knee <= sizes[-1]:
                axes.axvline(line.knee, color=colour, linestyle="dotted")
        axes.set(xscale="log", yscale="log", title=op, xlabel="bytes")
        axes.set_xticks(*_ticks(sizes), minor=False)
        axes.minorticks_off()
    panels[0].set_ylabel("milliseconds")
    looks = [
        Line2D([], [], color=series_colour(2 * look), marker=rank_marker(look), label=f"{n} ranks")
        for look, n in enumerate(counts)
    ]
    figure.legend(handles=looks, loc="outside upper left", ncols=4)
    return figure


def _ticks(sizes: np.ndarray) -> tuple[list[int], list[str]]:
    """Round sizes within the axis, and their names."""
    named = {2**10: "1 Ki", 2**15: "32 Ki", 2**20: "1 Mi", 2**25: "32 Mi"}
    inside = {size: name for size, name in named.items() if sizes[0] <= size <= sizes[-1]}
    return list(inside), list(inside.values())


def _of(table: pd.DataFrame, op: str, count: int) -> pd.DataFrame:
    return table[(table["op"] == op) & (table["ranks"] == count)]


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
