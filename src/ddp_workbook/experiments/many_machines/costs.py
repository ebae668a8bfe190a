"""Chapter 07, further: the parts of a DDP step, measured on this machine's ranks, and fitted.

Three things are timed: forward and backward under `no_sync`, which send nothing; all-reduces alone;
and whole DDP steps. The model is fitted to the first two. Whole steps are only compared with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters.digits import DigitsMLP
from manyranks import figures
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from manyranks.launcher.limits import usable_cores
from manyranks.launcher.process_group import set_up
from manyranks.planning.messages import ddp_buckets
from manyranks.planning.scaling import (
    FORWARD,
    BucketTiming,
    Job,
    Ring,
    Step,
    bucket_timings,
    fit_compute,
    fit_ring,
    oversubscription_of_each,
    predict_step,
)

CLASSES, PIXELS = 10, 64
BUSY = "a rank alone waited for a core {:.0%} of the time: the machine is busy, measure again"
KEYS = ["part", "ranks", "amount"]
ETHERNET = (1, 2.5, 10, 25, 100)  # Gbit/s


class Workload(NamedTuple):
    """What the ranks train: a DigitsMLP, its buckets, and what is timed of it.

    `rows` are numbers of rows of a rank, `sizes` bytes of all-reduces that are timed alone.
    """

    width: int = 512
    depth: int = 4
    bucket_cap_mb: float = 1.0
    rows: tuple[int, ...] = (32, 128)
    sizes: tuple[int, ...] = (1024, 262_144, 2_097_152)

    def model(self) -> DigitsMLP:
        """Its model, the same on every rank."""
        torch.manual_seed(0)
        return DigitsMLP(self.width, self.depth)

    def buckets(self) -> list[int]:
        """Bytes of DDP's buckets, from its second step on."""
        shapes: list[Sequence[int]] = [tuple(p.shape) for p in self.model().parameters()]
        return ddp_buckets(shapes[::-1], 4, self.bucket_cap_mb)


class Timing(NamedTuple):
    """One timing in a rank. `amount` is rows, or the bytes of an all-reduce; 0 of an update.

    `begun` is read from a clock that all processes of a machine share, in seconds. `waited` is the
    share of the time in which the main thread had to wait for a core; nan outside Linux.
    """

    part: str  # "compute", "all-reduce", "step" or "update"
    amount: int
    round: int
    begun: float
    seconds: float
    waited: float


# In a rank


def timings_of_rank(
    work: Workload, rounds: int, parts: Sequence[str] = (), budget: float = inf
) -> list[Timing]:
    """Join a group, then time every part of a step in turns; see `Timer.timings`."""
    set_up(bare=False)
    return Timer(work).timings(rounds, parts, budget)


class Timer:
    """The model, the optimizer and the tensors of one rank."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self.ddp = DistributedDataParallel(work.model(), bucket_cap_mb=work.bucket_cap_mb)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.01)
        most = max(work.rows)
        self.images, self.labels = torch.rand(most, PIXELS), torch.arange(most) % CLASSES
        self.vectors = {size: torch.ones(size // 4) for size in work.sizes}

    def timings(self, rounds: int, parts: Sequence[str] = (), budget: float = inf) -> list[Timing]:
        """All parts in turns, so that what slows the machine down slows all of them.

        `parts` are those to time, all of them if none is given. A first round warms up. After
        `budget` seconds no other round begins.
        """
        timings, end, more = [], time.perf_counter() + budget, torch.ones(1)
        for number in range(rounds + 1):
            for part, amount, run in self.runs():
                if not parts or part in parts:
                    timings.append(Timing(part, amount, number, *time_run(run)))
            more[0] = number == 0 or time.perf_counter() < end
            dist.broadcast(more, src=0)  # all ranks stop in the same round
            if not more:
                break
        dist.barrier()
        return [timing for timing in timings if timing.round > 0]

    def runs(self) -> Iterable[tuple[str, int, Callable[[], object]]]:
        """What is timed: part, amount, and the function that does it."""
        for rows in self.work.rows:
            yield "compute", rows, partial(self.without_sync, rows)
            yield "step", rows, partial(self.forward_and_backward, rows)
        yield "update", 0, self.update
        for size, vector in self.vectors.items():  # a sum would grow to infinity
            yield "all-reduce", size, partial(dist.all_reduce, vector, dist.ReduceOp.MAX)

    def forward_and_backward(self, rows: int) -> None:
        """Of one DDP step, its all-reduces included."""
        F.cross_entropy(self.ddp(self.images[:rows]), self.labels[:rows]).backward()

    def without_sync(self, rows: int) -> None:
        """The same without communication; forward belongs inside, or `no_sync` has no effect."""
        with self.ddp.no_sync():
            self.forward_and_backward(rows)

    def update(self) -> None:
        """What ends a step."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def time_run(run: Callable[[], object]) -> tuple[float, float, float]:
    """When it began, its seconds, and the share of them that this thread waited for a core."""
    dist.barrier()  # else a rank that starts early would count the time it waits
    wait_before, start = core_wait_seconds(), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return start, seconds, (core_wait_seconds() - wait_before) / seconds


def core_wait_seconds() -> float:
    """Seconds that this thread was ready to run and had no core, so far; nan outside Linux."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return float("nan")


# In the notebook


def measure(
    ranks: Iterable[int] = (1, 2, 3, 4),
    work: Workload = Workload(),  # noqa: B008  a NamedTuple cannot change
    rounds: int = 30,
    parts: Sequence[str] = (),
    budget: float = 2.5,
) -> pd.DataFrame:
    """Seconds of each part at each number of ranks: columns part, ranks, amount, seconds, waited.

    A timing is that of the slowest rank, and of all rounds the fastest: other programs can only add
    time. `waited` is the median share of the time that a rank waited for a core. Each rank has one
    thread. With each number of ranks, no round begins after `budget` seconds.
    """
    tables = []
    for count in ranks:
        call = Call(timings_of_rank, (work, rounds, parts, budget), {})
        hidden = {"CUDA_VISIBLE_DEVICES": ""}  # this page fits a CPU, whatever else there is
        of_ranks = run_ranks(call, count, 300, quiet=True, threads=1, environment=hidden)
        tables.append(slowest_ranks(of_ranks))
    timings = pd.concat(tables, ignore_index=True)
    rounds_of = timings.groupby(KEYS, sort=False, as_index=False)
    return rounds_of.agg(seconds=("seconds", "min"), waited=("waited", "median"))


def slowest_ranks(of_ranks: Sequence[Sequence[Timing]]) -> pd.DataFrame:
    """Timings of all ranks as one table: part, ranks, amount, round, seconds, waited.

    Seconds from the first rank's begin to the last one's end: where ranks share a core, some begin
    late. `waited` is the largest share.
    """
    frame = pd.concat([pd.DataFrame(timings, columns=Timing._fields) for timings in of_ranks])
    frame["end"] = frame["begun"] + frame["seconds"]
    together = frame.groupby(["part", "amount", "round"], sort=False, as_index=False)
    table = together.agg(begun=("begun", "min"), end=("end", "max"), waited=("waited", "max"))
    table["seconds"] = table.pop("end") - table.pop("begun")
    table.insert(1, "ranks", len(of_ranks))
    return table


class FittedModel(NamedTuple):
    """The model of this machine, and how far each measurement is from it (a share of it)."""

    job: Job
    ring: Ring
    residuals: pd.DataFrame  # part, ranks, amount, seconds, residual
    waited: float = 0.0  # share of the time that a rank alone had to wait for a core

    def __repr__(self) -> str:
        job, ring = self.job, self.ring
        # A disturbed machine can make large messages look as fast as small ones.
        rate = f"so {1e-6 / ring.beta:,.0f} MB/s" if ring.beta else "so measure again"
        return (
            f"compute: {job.fixed * 1e3:.2f} ms + {job.per_row * 1e6:.1f} µs a row\n"
            f"alpha: {ring.alpha * 1e6:.0f} µs a message\n"
            f"beta: {ring.beta * 1e9:.2f} ns a byte, {rate}"
            + (f"\n{BUSY.format(self.waited)}" if self.waited > 0.1 else "")
        )


def fit(
    measurements: pd.DataFrame,
    work: Workload = Workload(),  # noqa: B008  a NamedTuple cannot change
    cores: int | None = None,
) -> FittedModel:
    """Fit compute, alpha and beta to `measure`'s table; its whole steps are not used."""
    cores = cores or usable_cores()
    parts = {part: table for part, table in measurements.groupby("part")}
    all_reduces = parts["all-reduce"].query("ranks > 1").rename(columns={"amount": "bytes"})
    ring, off_ring = fit_ring(all_reduces, cores)
    computes = parts["compute"].rename(columns={"amount": "rows"})
    coefficients, off_compute = fit_compute(computes, cores)
    update = parts["update"]
    once = (update["seconds"] / oversubscription_of_each(update["ranks"], cores)).median()
    off = pd.concat([all_reduces.assign(residual=off_ring), computes.assign(residual=off_compute)])
    off["amount"] = off["bytes"].fillna(off["rows"]).astype(int)
    job = Job(**coefficients, buckets=work.buckets(), update=float(once), cores=cores)
    residuals = off[[*KEYS, "seconds", "residual"]].reset_index(drop=True)
    alone = computes[computes["ranks"] == computes["ranks"].min()]
    return FittedModel(job, ring, residuals, float(alone["waited"].median()))


def compare_steps(measurements: pd.DataFrame, model: FittedModel) -> pd.DataFrame:
    """Whole steps, measured and by the model: ranks, rows of a rank, milliseconds, their ratio."""
    table = measurements[measurements["part"] == "step"].rename(columns={"amount": "rows"})
    table = table[["ranks", "rows"]].assign(measured=table["seconds"] * 1e3)
    pairs = zip(table["ranks"], table["rows"], strict=True)
    table["model"] = [milliseconds(model, ranks, rows) for ranks, rows in pairs]
    table = table.assign(ratio=table["model"] / table["measured"]).round(2)
    return table.set_index(["ranks", "rows"])


def milliseconds(model: FittedModel, ranks: int, rows: int) -> float:
    """Forward and backward by the model, all-reduces included, as `measure` times a step."""
    step = predict_step(model.job, model.ring, ranks, rows)
    return 1e3 * (step.seconds - step.update)


def own_machines(
    model: FittedModel, names_and_bits: Mapping[str, float], ranks: int = 4, rows: int = 128
) -> dict[str, tuple[Step, list[BucketTiming]]]:
    """The step if each rank had a machine of its own, like this one, on links of so many bit/s.

    The wire's seconds come on top of those that this machine takes to copy and add. By name: the
    step, and its buckets in time.
    """
    job, steps = replace(model.job, cores=None), {}
    for name, bits in names_and_bits.items():
        ring = Ring(model.ring.alpha, model.ring.beta + 8 / bits)
        steps[name] = predict_step(job, ring, ranks, rows), bucket_timings(job, ring, ranks, rows)
    return steps


@figures.house_style
def timeline_plot(steps: Mapping[str, tuple[Step, list[BucketTiming]]]) -> figures.Picture:
    """`own_machines`, one below the other: the compute, and under it each all-reduce.

    A thin line marks where compute ends: what is right of it makes the step longer.
    """
    events = []
    for name, (step, buckets) in steps.items():
        turn = FORWARD * step.compute
        events += [(name, "forward", 0.0, turn), (name, "backward", turn, step.compute)]
        events += [
            (f"{name}: all-reduce", "all-reduce", bucket.start, bucket.end) for bucket in buckets
        ]
    table = pd.DataFrame(events, columns=["lane", "what", "start", "end"])
    table[["start", "end"]] *= 1e3
    about = "A step by the model, in time"
    picture = figures.lanes(table, "milliseconds since forward began", about)
    for place, (name, (step, _)) in enumerate(steps.items()):
        end, ends = step.compute * 1e3, [2 * place - 0.45, 2 * place + 1.45]
        picture.axes.plot([end, end], ends, color="black", linewidth=1)
        picture.alt += f" {name}: compute ends after {end:.0f} ms."
    return picture


def by_ethernet(model: FittedModel, ranks: int = 4, rows: int = 128) -> pd.DataFrame:
    """The same for the usual rates of Ethernet: Gbit/s, milliseconds, and how much longer a step is
    than its compute."""
    names_and_bits = {f"{gbit:g}": gbit * 1e9 for gbit in ETHERNET}
    steps = own_machines(model, names_and_bits, ranks, rows)
    rows_of = {
        name: {
            "compute": 1e3 * step.compute,
            "step": 1e3 * (step.compute + step.exposed),
            "longer by": f"{step.exposed / step.compute:.0%}",
        }
        for name, (step, _) in steps.items()
    }
    return pd.DataFrame.from_dict(rows_of, orient="index").rename_axis("Gbit/s").round(1)


def worst_residuals(model: FittedModel) -> pd.DataFrame:
    """For each part the median and the largest residual, as shares of what the model says."""
    off = model.residuals.assign(off=model.residuals["residual"].abs()).groupby("part")["off"]
    return off.agg(timings="count", median="median", largest="max").round(2)
