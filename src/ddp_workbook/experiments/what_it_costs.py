"""Chapter 07, further: the parts of a DDP step, measured on this machine's ranks, and fitted.

Three things are timed: forward and backward under `no_sync`, which send nothing; all-reduces alone;
and whole DDP steps. The model is fitted to the first two. Whole steps are only compared with it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.digits import DigitsMLP
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.limits import usable_cores
from ddp_workbook.launcher.process_group import set_up
from ddp_workbook.planning.messages import ddp_buckets
from ddp_workbook.planning.scaling import (
    Job,
    Ring,
    crowded,
    fit_compute,
    fit_ring,
)

CLASSES, PIXELS = 10, 64
KEYS = ["part", "ranks", "amount"]


class Work(NamedTuple):
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
        shapes = [tuple(parameter.shape) for parameter in self.model().parameters()]
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


def timings_of_rank(work: Work, rounds: int, parts: Sequence[str] = ()) -> list[Timing]:
    """Join a group, then time every part of a step in turns; a first round warms up.

    `parts` are those to time, all of them if none is given.
    """
    set_up(bare=False)
    return Timer(work).timings(rounds, parts)


class Timer:
    """The model, the optimizer and the tensors of one rank."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.ddp = DistributedDataParallel(work.model(), bucket_cap_mb=work.bucket_cap_mb)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.01)
        most = max(work.rows)
        self.images, self.labels = torch.rand(most, PIXELS), torch.arange(most) % CLASSES
        self.vectors = {size: torch.ones(size // 4) for size in work.sizes}

    def timings(self, rounds: int, parts: Sequence[str] = ()) -> list[Timing]:
        """All parts in turns, so that what slows the machine down slows all of them."""
        found = []
        for number in range(rounds + 1):
            for part, amount, run in self.runs():
                if not parts or part in parts:
                    found.append(Timing(part, amount, number, *timed(run)))
        dist.barrier()
        return [timing for timing in found if timing.round > 0]

    def runs(self) -> Iterable[tuple[str, int, Callable[[], object]]]:
        """What is timed: part, amount, and the function that does it."""
        for rows in self.work.rows:
            yield "compute", rows, lambda rows=rows: self.without_sync(rows)
            yield "step", rows, lambda rows=rows: self.forward_and_backward(rows)
        yield "update", 0, self.update
        for size, vector in self.vectors.items():  # a sum would grow to infinity
            yield "all-reduce", size, lambda v=vector: dist.all_reduce(v, dist.ReduceOp.MAX)

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


def timed(run: Callable[[], object]) -> tuple[float, float, float]:
    """When it began, its seconds, and the share of them that this thread waited for a core."""
    dist.barrier()  # else a rank that starts early would count the time it waits
    waited, begun = waiting(), time.perf_counter()
    run()
    seconds = time.perf_counter() - begun
    return begun, seconds, (waiting() - waited) / seconds


def waiting() -> float:
    """Seconds that this thread was ready to run and had no core, so far; nan outside Linux."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    try:
        return int(path.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return float("nan")


# In the notebook


def measure(
    ranks: Iterable[int] = (1, 2, 3, 4),
    work: Work = Work(),  # noqa: B008  a NamedTuple cannot change
    rounds: int = 5,
    parts: Sequence[str] = (),
) -> pd.DataFrame:
    """Seconds of each part at each number of ranks: columns part, ranks, amount, seconds.

    A timing is that of the slowest rank, and of all rounds the fastest: other programs can only add
    time. Each rank has one thread.
    """
    tables = []
    for count in ranks:
        call = Call(timings_of_rank, (work, rounds, parts), {})
        hidden = {"CUDA_VISIBLE_DEVICES": ""}  # this page fits a CPU, whatever else there is
        of_ranks = run_ranks(call, count, 300, quiet=True, threads=1, environment=hidden)
        tables.append(slowest_ranks(of_ranks))
    timings = pd.concat(tables, ignore_index=True)
    return timings.groupby(KEYS, sort=False, as_index=False)["seconds"].min()


def slowest_ranks(of_ranks: Sequence[Sequence[Timing]]) -> pd.DataFrame:
    """Timings of all ranks as one table: part, ranks, amount, round, seconds, waited.

    Seconds from the first rank's begin to the last one's end: where ranks share a core, some begin
    late. `waited` is the largest share.
    """
    frame = pd.concat([pd.DataFrame(one, columns=Timing._fields) for one in of_ranks])
    frame["end"] = frame["begun"] + frame["seconds"]
    together = frame.groupby(["part", "amount", "round"], sort=False, as_index=False)
    table = together.agg(begun=("begun", "min"), end=("end", "max"), waited=("waited", "max"))
    table["seconds"] = table.pop("end") - table.pop("begun")
    table.insert(1, "ranks", len(of_ranks))
    return table


class Fitted(NamedTuple):
    """The model of this machine, and how far each measurement is from it (a share of it)."""

    job: Job
    ring: Ring
    residuals: pd.DataFrame  # part, ranks, amount, seconds, residual

    def __repr__(self) -> str:
        job, ring = self.job, self.ring
        return (
            f"compute: {job.fixed * 1e3:.2f} ms + {job.per_row * 1e6:.1f} µs a row\n"
            f"alpha: {ring.alpha * 1e6:.0f} µs a message\n"
            f"beta: {ring.beta * 1e9:.2f} ns a byte, so {1e-6 / ring.beta:,.0f} MB/s"
        )


def fit(measured: pd.DataFrame, work: Work = Work(), cores: int | None = None) -> Fitted:  # noqa: B008
    """Fit compute, alpha and beta to `measure`'s table; its whole steps are not used."""
    cores = cores or usable_cores()
    parts = {part: table for part, table in measured.groupby("part")}
    sent = parts["all-reduce"].query("ranks > 1").rename(columns={"amount": "bytes"})
    ring, off_ring = fit_ring(sent, cores)
    computed = parts["compute"].rename(columns={"amount": "rows"})
    coefficients, off_compute = fit_compute(computed, cores)
    update = parts["update"]
    alone = (update["seconds"] / crowded(update["ranks"], cores)).median()
    off = pd.concat([sent.assign(residual=off_ring), computed.assign(residual=off_compute)])
    off["amount"] = off["bytes"].fillna(off["rows"]).astype(int)
    job = Job(**coefficients, buckets=work.buckets(), update=float(alone), cores=cores)
    return Fitted(job, ring, off[[*KEYS, "seconds", "residual"]].reset_index(drop=True))
