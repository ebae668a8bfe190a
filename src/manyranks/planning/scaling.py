"""A model of a data-parallel step on N ranks: seconds from compute, alpha, beta and overlap.

Forward takes a third of the compute and backward two thirds, as in `planning.speed`. During
backward, gradients become ready at an even rate, those of the last layer first. Each bucket is
all-reduced once it is full and the previous all-reduce has ended. The step ends when the compute
and the last all-reduce have ended and the optimizer has made its update.

Not modelled: stragglers, data loading, a network shared with other jobs, checkpoints,
cores that compute and send at the same time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from manyranks.planning.hardware import MICROSECOND
from manyranks.planning.messages import Message
from manyranks.planning.speed import Cluster, bandwidth, call_seconds

FORWARD = 1 / 3  # of the compute; backward takes two products for each one of forward
# NCCL's tree, with the protocol that it prefers for buckets of some megabytes over NVLink (LL128):
# the latency of a step inside a node and between nodes, the base cost of a call, and its share of a
# ring's bandwidth. hwLat, baseLat and busBw in src/graph/tuning.cc, version 2.10, 2021.
TREE_INSIDE_S, TREE_BETWEEN_S, TREE_CALL_S = 1.2 * MICROSECOND, 8.5 * MICROSECOND, 4.4 * MICROSECOND
TREE_SHARE = 0.9 * 0.915


class NetworkModel(Protocol):
    """Anything that can tell how long an all-reduce takes."""

    def seconds(self, ranks: int, size: float) -> float:
        """Seconds of one all-reduce of `size` bytes over `ranks` ranks; 0 for one rank."""


@dataclass(frozen=True)
class Ring:
    """A ring of equal links: `alpha` seconds a message, `beta` seconds a byte.

    An all-reduce takes 2 (N - 1) messages one after the other, of S / N bytes each (Patarasuk and
    Yuan, 2009).
    """

    alpha: float
    beta: float

    def seconds(self, ranks: int, size: float) -> float:
        """2 (N - 1) alpha + 2 (N - 1) / N S beta."""
        return 2 * (ranks - 1) * (self.alpha + self.beta * size / ranks)


@dataclass(frozen=True)
class TwoLevels:
    """GPUs in nodes, from data sheets: fast links inside a node, slower ones between nodes.

    `algorithm` is "ring", "tree", or "best", the faster of the two: NCCL chooses for every call.
    """

    cluster: Cluster
    algorithm: str = "best"

    def seconds(self, ranks: int, size: float) -> float:
        """One all-reduce of `size` bytes over ranks that are numbered node by node."""
        if ranks == 1:
            return 0.0
        every = {"ring": self.ring(ranks, size), "tree": self.tree(ranks, size)}
        return min(every.values()) if self.algorithm == "best" else every[self.algorithm]

    def ring(self, ranks: int, size: float) -> float:
        """The ring of `planning.speed`: its slowest link sets the bandwidth."""
        whole = round(size)
        return call_seconds(Message("all_reduce", "", whole, whole, ranks), self.cluster)

    def tree(self, ranks: int, size: float) -> float:
        """A chain inside each node and a tree of the nodes, up and down, as in NCCL's cost model.

        The latency grows with the logarithm of the nodes. Each byte is sent twice, as in a ring.
        """
        inside = min(ranks, self.cluster.gpus_per_node)
        nodes = -(-ranks // inside)
        latency = 2 * ((inside - 1) * TREE_INSIDE_S + log2(nodes) * TREE_BETWEEN_S)
        return (
            TREE_CALL_S + latency + 2 * size / (TREE_SHARE * bandwidth(inside, nodes, self.cluster))
        )


@dataclass(frozen=True)
class Job:
    """A training step: `fixed` + `per_row` · rows seconds of compute, then the update.

    `buckets` are the bytes of the gradients, in the order in which backward fills them. `cores` is
    for ranks that share the cores of one machine. If there are too few, each rank computes and
    sends that much longer, and only spare cores send while others compute.
    """

    fixed: float
    per_row: float
    buckets: Sequence[float]
    update: float = 0.0
    cores: int | None = None

    @property
    def size(self) -> float:
        """Bytes of all gradients."""
        return sum(self.buckets)

    def compute(self, ranks: int, rows: float) -> float:
        """Seconds of forward and backward for `rows` rows on each of `ranks` ranks."""
        return oversubscription(ranks, self.cores) * (self.fixed + self.per_row * rows)

    def overlap(self, ranks: int) -> float:
        """The share of ranks with a second core to send on; 1 if each rank has its own cores."""
        return 1.0 if self.cores is None else min(1.0, max(0.0, self.cores / ranks - 1))


def oversubscription(ranks: float, cores: int | None) -> float:
    """How many ranks share a core; 1 if each has its own."""
    return max(1.0, ranks / cores) if cores else 1.0


class BucketTiming(NamedTuple):
    """A bucket on its way: seconds since forward began."""

    ready: float
    start: float
    end: float


class Step(NamedTuple):
    """A step in seconds: compute, communication, and the exposed part of the communication."""

    seconds: float
    compute: float
    communication: float
    exposed: float
    update: float


def bucket_timings(job: Job, network: NetworkModel, ranks: int, rows: float) -> list[BucketTiming]:
    """When each bucket is ready, starts and ends: one all-reduce at a time, in order."""
    compute, filled_bytes, end, timings = job.compute(ranks, rows), 0.0, 0.0, []
    for size in job.buckets:
        filled_bytes += size
        ready = compute * (FORWARD + (1 - FORWARD) * filled_bytes / job.size)
        start = max(ready, end)
        end = start + oversubscription(ranks, job.cores) * network.seconds(ranks, size)
        timings.append(BucketTiming(ready, start, end))
    return timings


def predict_step(job: Job, network: NetworkModel, ranks: int, rows: float) -> Step:
    """The step of `ranks` ranks with `rows` rows each, with overlap.

    Raises ValueError for less than one rank, and for a job without gradients.
    """
    if ranks < 1 or job.size <= 0:
        raise ValueError(f"{ranks} ranks with {job.size} bytes of gradients: nothing to predict.")
    compute, update = job.compute(ranks, rows), job.update * oversubscription(ranks, job.cores)
    timings = bucket_timings(job, network, ranks, rows) if ranks > 1 else []
    communication, share = sum(timing.end - timing.start for timing in timings), job.overlap(ranks)
    after = (
        max([compute, *(timing.end for timing in timings)]) - compute
    )  # if all of it may overlap
    exposed = share * after + (1 - share) * communication
    return Step(compute + exposed + update, compute, communication, exposed, update)


def weak_scaling(
    job: Job, network: NetworkModel, rows: float, ranks: Iterable[int]
) -> pd.DataFrame:
    """Each rank has `rows` rows, so the batch grows with the ranks; a row of the table for each N.

    Columns: ranks, rows (of a rank), batch, compute, communication, exposed, seconds,
    samples_per_second, speed_up and efficiency. The last two are relative to one rank.
    """
    alone = predict_step(job, network, 1, rows).seconds / rows
    return _table(job, network, [(n, rows) for n in ranks], alone)


def strong_scaling(
    job: Job, network: NetworkModel, batch: float, ranks: Iterable[int]
) -> pd.DataFrame:
    """The batch is fixed, so each rank's share shrinks; columns as in `weak_scaling`."""
    alone = predict_step(job, network, 1, batch).seconds / batch
    return _table(job, network, [(n, batch / n) for n in ranks], alone)


def _table(
    job: Job, network: NetworkModel, sizes: list[tuple[int, float]], a_sample_alone: float
) -> pd.DataFrame:
    steps = [predict_step(job, network, *size)._asdict() for size in sizes]
    frame = pd.DataFrame(sizes, columns=["ranks", "rows"]).join(pd.DataFrame(steps))
    frame.insert(2, "batch", frame["ranks"] * frame["rows"])
    frame["samples_per_second"] = frame["batch"] / frame["seconds"]
    frame["speed_up"] = frame["samples_per_second"] * a_sample_alone
    frame["efficiency"] = frame["speed_up"] / frame["ranks"]
    return frame


def turning_point(job: Job, ring: Ring, batch: float) -> float:
    """The number of ranks beyond which more ranks make a step of this batch longer.

    Nothing is sent before the first of k buckets is ready: that is a share h of the compute. If the
    communication is longer than the rest of the compute, a step takes

        h · per_row · batch / N + 2 k (N - 1) alpha + 2 (N - 1) / N G beta

    for G bytes of gradients, plus a part that does not depend on N. The derivative is zero at

        N = sqrt((h · per_row · batch - 2 G beta) / (2 k alpha))

    The turning point is there, or where the communication first becomes as long as the rest of the
    compute, if that comes later: until then more ranks always help. It is infinite if messages and
    bytes cost nothing. Each rank has a core of its own here.
    """
    work, share = job.per_row * batch, FORWARD + (1 - FORWARD) * job.buckets[0] / job.size
    messages, data = 2 * len(job.buckets) * ring.alpha, 2 * job.size * ring.beta
    rest = (1 - share) * work  # hides communication: messages (N - 1) + data (N - 1) / N = rest / N
    if messages == 0:
        return float("inf") if share * work > data else 1 + (rest / data if data else 0)
    middle = (messages - data) / 2
    no_longer_hidden = (middle + sqrt(middle**2 + messages * (data + rest))) / messages
    return max(no_longer_hidden, sqrt(max(0.0, share * work - data) / messages))


class Fit(NamedTuple):
    """Coefficients by name, and measured / fitted - 1 for each measurement."""

    coefficients: dict[str, float]
    residuals: np.ndarray


def least_squares(terms: Mapping[str, ArrayLike], seconds: ArrayLike) -> Fit:
    """The non-negative coefficients that best fit seconds = sum of coefficient · term.

    Errors are relative, so a small message counts as much as a large one. A term whose coefficient
    would be negative is left out, the most negative first. Raises ValueError if the measurements
    cannot tell the terms apart.
    """
    times, remaining = np.asarray(seconds, float), dict(terms)
    while remaining:
        columns = np.stack([np.asarray(term, float) / times for term in remaining.values()], axis=1)
        scale = np.linalg.norm(columns, axis=0)  # ranks and bytes differ by a factor of a million
        if (scale == 0).any() or np.linalg.matrix_rank(columns / scale, tol=1e-6) < len(remaining):
            raise ValueError(f"These measurements cannot tell {', '.join(remaining)} apart.")
        solution = np.linalg.lstsq(columns / scale, np.ones(len(times)), rcond=None)[0] / scale
        if (solution >= 0).all():
            break
        del remaining[list(remaining)[int(np.argmin(solution * scale))]]
    coefficients = dict.fromkeys(terms, 0.0) | dict(
        zip(remaining, map(float, solution), strict=True)
    )
    fitted = np.sum(
        [coefficients[name] * np.asarray(term, float) for name, term in terms.items()], axis=0
    )
    return Fit(coefficients, times / fitted - 1)


def fit_ring(timings: pd.DataFrame, cores: int | None = None) -> tuple[Ring, np.ndarray]:
    """alpha and beta from all-reduces (columns ranks, bytes, seconds), and the residuals.

    With `cores`, ranks that share one take longer.
    """
    ranks, size = timings["ranks"].to_numpy(float), timings["bytes"].to_numpy(float)
    messages = 2 * (ranks - 1) * oversubscription_of_each(ranks, cores)
    terms = {"alpha": messages, "beta": messages / ranks * size}
    fit = least_squares(terms, timings["seconds"])
    return Ring(**fit.coefficients), fit.residuals


def fit_compute(timings: pd.DataFrame, cores: int | None = None) -> tuple[dict, np.ndarray]:
    """`fixed` and `per_row` of a Job from steps without communication, and the residuals.

    Columns ranks, rows (of a rank) and seconds; with `cores`, ranks that share one take longer.
    """
    longer = oversubscription_of_each(timings["ranks"], cores)
    terms = {"fixed": longer, "per_row": longer * timings["rows"].to_numpy(float)}
    fit = least_squares(terms, timings["seconds"])
    return fit.coefficients, fit.residuals


def oversubscription_of_each(ranks: Iterable[float], cores: int | None) -> np.ndarray:
    """`oversubscription` of each of these numbers of ranks."""
    return np.array([oversubscription(n, cores) for n in ranks])
