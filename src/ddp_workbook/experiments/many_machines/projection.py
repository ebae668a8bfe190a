"""Chapter 07, further: a transformer on GPUs that are not here, by the model, to 1,024 of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log2
from typing import Any, NamedTuple

import pandas as pd

from manyranks import figures
from manyranks.figures.palette import FAINT, INK, rank_marker, series_colour
from manyranks.planning.hardware import (
    COMPUTE_SHARE,
    GBIT,
    GPUS,
    INTER_NODE_LINKS,
    INTRA_NODE_LINKS,
    LINK_SHARE,
    NETWORK_STEP_S,
    find_by_name,
)
from manyranks.planning.scaling import (
    Job,
    NetworkModel,
    Ring,
    TwoLevels,
    strong_scaling,
    turning_point,
    weak_scaling,
)
from manyranks.planning.speed import Cluster

IDEAL = {"color": INK, "linestyle": "dotted", "linewidth": 1.2}
H100 = find_by_name(GPUS, "H100")
PARAMETERS, SEQUENCE = 1.5e9, 2048
ROWS = 32  # sequences of a GPU in weak scaling: 65,536 tokens
RANKS = tuple(2**power for power in range(11))  # 1 to 1,024
# One 100 Gbit port for each GPU, and no faster link beside it: the ring of the formulas.
FLAT = Ring(NETWORK_STEP_S, 1 / (LINK_SHARE * 100 * GBIT))
NETWORKS = {
    f"{link.name}, one port per {'node' if link.per_node else 'GPU'}": TwoLevels(
        Cluster(find_by_name(INTRA_NODE_LINKS, H100.inside), link)
    )
    for link in INTER_NODE_LINKS
    if link.name in ("InfiniBand NDR", "Ethernet 100G", "Ethernet 25G")
}


class PublishedScaling(NamedTuple):
    """Somebody's weak scaling: throughput of a GPU at two sizes, as they published it."""

    what: str
    source: str
    ranks: tuple[int, int]
    per_gpu: tuple[float, float]

    @property
    def efficiency(self) -> float:
        """At the larger size, against the smaller one."""
        return self.per_gpu[1] / self.per_gpu[0]


PUBLISHED_RUNS = (
    PublishedScaling("DDP, A100", "NERSC, SC25 tutorial", (4, 64), (203 / 4, 2550 / 64)),
    PublishedScaling("FSDP, Llama 8B, H100", "torchtitan, benchmarks", (8, 128), (5762, 5605)),
)


def gpu_job(parameters: float = PARAMETERS, bucket: float = 25 * 2**20) -> Job:
    """A transformer with DDP on H100s: bf16 compute, float32 gradients in buckets of 25 MiB.

    A sequence takes 6 · parameters · tokens operations, at half of what the data sheet promises
    (`planning.speed`, attention left out). The update takes no time here.
    """
    whole, rest = divmod(4 * parameters, bucket)
    buckets = [bucket] * int(whole) + ([rest] if rest > 0 else [])
    seconds = 6 * parameters * SEQUENCE / (COMPUTE_SHARE * H100.flops)
    return Job(fixed=0.0, per_row=seconds, buckets=buckets)


def weak_scaling_table(networks: Mapping[str, NetworkModel] = NETWORKS) -> pd.DataFrame:
    """Weak scaling of `gpu_job` with ROWS sequences a GPU, on each network; see `weak_scaling`."""
    tables = [
        weak_scaling(gpu_job(), network, ROWS, RANKS).assign(network=name)
        for name, network in networks.items()
    ]
    return pd.concat(tables, ignore_index=True)


def strong_scaling_tables(
    batch: int = 1024, buckets_in_mib: Iterable[int] = (25,)
) -> tuple[dict[str, pd.DataFrame], dict[str, float]]:
    """Strong scaling of `gpu_job` on FLAT with a batch of so many sequences, for each bucket size.

    Tables as of `strong_scaling` for every number of GPUs to 1,024, and the turning points by the
    formula, both by name.
    """
    jobs = {f"buckets of {mib} MiB": gpu_job(bucket=mib * 2**20) for mib in buckets_in_mib}
    every = range(1, max(RANKS) + 1)
    tables = {name: strong_scaling(job, FLAT, batch, every) for name, job in jobs.items()}
    return tables, {name: turning_point(job, FLAT, batch) for name, job in jobs.items()}


def fastest_gpu_counts(tables: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """By name: the number of GPUs of a table of `strong_scaling_tables` with the shortest step."""
    return {name: int(table["ranks"][table["seconds"].idxmin()]) for name, table in tables.items()}


def published_table() -> pd.DataFrame:
    """What others have measured: a line a source."""
    rows = [(run.what, run.source, *run.ranks, run.efficiency) for run in PUBLISHED_RUNS]
    columns = ["what", "source", "from", "to", "efficiency"]
    return pd.DataFrame(rows, columns=columns).round(3)


@figures.house_style
def weak_plot() -> figures.Picture:
    """Efficiency against ranks, a line a network (by the model), and what others have published."""
    weak, measurements = weak_scaling_table(), published_table()
    table = weak.pivot(index="ranks", columns="network", values="efficiency")[list(NETWORKS)]
    table.columns = [f"model: {network}" for network in table]
    table = table.rename_axis("GPUs; each computes as much as one GPU alone")
    picture = figures.lines(table, "efficiency", "Efficiency of weak scaling")
    axes = picture.axes
    axes.axhline(1, **IDEAL)
    for number, row in enumerate(measurements.itertuples(index=False)):
        ends, heights = [row[2], row[3]], [1, row.efficiency]
        look = {"marker": rank_marker(number + 5), "color": series_colour(1), "markersize": 8}
        axes.plot(
            ends, heights, linestyle="none", label=f"measured: {row.what} ({row.source})", **look
        )
        axes.plot(ends, heights, color=FAINT, linewidth=1, zorder=0)
    _by_ranks(axes, RANKS)
    axes.set_ylim(0, 1.08)
    picture.figure.legends.clear()
    picture.figure.legend(loc="outside upper left", ncols=1, fontsize=9.5)
    points = [
        f"{row.what}, measured from {row[2]} to {row[3]} GPUs: {row.efficiency:.1%}"
        for row in measurements.itertuples(index=False)
    ]
    picture.alt += f" From 1 to {max(RANKS):,} GPUs. {'; '.join(points)}."
    return picture


@figures.house_style
def strong_plot(
    scaling: Mapping[str, pd.DataFrame], turning: Mapping[str, float]
) -> figures.Picture:
    """Seconds of a step against ranks, a line a table, marked where a step is shortest.

    `scaling` and `turning` are what `strong_scaling_tables` returns.
    """
    seconds = {name: table.set_index("ranks")["seconds"] for name, table in scaling.items()}
    first = next(iter(seconds.values()))
    table = pd.DataFrame({"ideal": first.iloc[0] / first.index, **seconds})
    table = table.rename_axis("GPUs; all of them share one batch")
    picture = figures.lines(table, "seconds a step", "Seconds of a step", log="y")
    axes = picture.axes
    for number, (name, line) in enumerate(seconds.items()):
        lowest, colour, above = turning[name], axes.lines[number + 1].get_color(), number == 0
        shortest = line.iloc[abs(line.index - lowest).argmin()]
        axes.plot(lowest, shortest, marker="o", color=colour)
        place = {"xytext": (0, 9 if above else -9), "va": "bottom" if above else "top"}
        words = f"{shortest:.2f} s on {lowest:.0f}"
        look = {"textcoords": "offset points", "ha": "center", "color": colour}
        axes.annotate(words, (lowest, shortest), **place, **look)
    _by_ranks(axes, [2**power for power in range(int(log2(max(first.index))) + 1)])
    axes.set_ylim(min(line.min() for line in seconds.values()) / 3, None)
    axes.yaxis.set_major_formatter("{x:g}")
    marks = [
        f"{name}: {line.min():.2f} s at the shortest, on about {turning[name]:.0f}"
        for name, line in seconds.items()
    ]
    picture.alt += f" From 1 to {max(first.index):,} GPUs. {'; '.join(marks)}."
    return picture


def _by_ranks(axes: Any, ranks: Iterable[int]) -> None:
    """A logarithmic axis with the numbers of ranks that were asked for."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(ranks)), [f"{n:,}" for n in sorted(set(ranks))])
    axes.minorticks_off()
