"""Chapter 02's timings: DDP against DataParallel against one process, measured and recorded.

The other candidates, the step and its timing are those of chapter 01.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import pandas as pd
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddp_workbook.chapters import distributed_data_parallel, single_process
from ddp_workbook.experiments.data_parallel import step_times as of_chapter_01
from ddp_workbook.experiments.data_parallel.step_times import (
    WARM_UP,
    WORKERS,
    Size,
    in_fresh_processes,
    median_steps,
    model_and_batch,
    on_gpus,
    parts_of_replicas,
    step_times,
    time_steps,
    training_step,
    with_sizes,
)
from manyranks import figures
from manyranks.files import write_atomically
from manyranks.recording.timing import time_step

SIZES = (Size(64, 32, 64), Size(256, 8, 256), Size(1024, 4, 256), Size(1024, 4, 1024))
TIMINGS = Path(__file__).parents[4] / "data" / "timings"
STEP_TIMES = "dp_against_ddp"  # names of recorded runs
BREAKDOWN = "dp_and_ddp_breakdown"


# Measurements


def dp_against_ddp(
    sizes: Sequence[Size] = SIZES, rounds: int = 3, seconds: float = 0.1, budget: float = math.inf
) -> pd.DataFrame:
    """Step times: width, depth, batch, candidate, round, seconds, machine; a row a round.

    Each is the median of the steps that fit into about `seconds`, at least two, after a warm-up; a
    step takes as long as on its slowest rank. Measures the GPUs if there are two, else CPU cores,
    where threads stand in for DataParallel's devices. No round starts after `budget` seconds. The
    first candidate is the baseline.
    """
    return step_times(candidates(sizes, seconds), sizes, rounds, budget)


def candidates(sizes: Sequence[Size], seconds: float) -> dict[str, Callable[[], list[float]]]:
    """Chapter 01's ways of training and DDP; each returns its seconds a step for every size."""
    ddp = partial(median_steps, ranks, sizes, seconds, ranks=WORKERS, threads=1)
    return {**of_chapter_01.candidates(sizes, seconds), candidate_name(): ddp}


def candidate_name() -> str:
    """What DDP is called in the tables."""
    return f"DDP, {WORKERS} {'GPUs' if on_gpus() else 'ranks'}"


def breakdown(
    sizes: Sequence[Size] = (SIZES[0], SIZES[-1]), rounds: int = 3, seconds: float = 0.1
) -> pd.DataFrame:
    """What a step's parts take: width, depth, batch, candidate, part, seconds, machine.

    Medians of `rounds` turns. DDP's all-reduce is the normal step minus a `no_sync` step: only the
    communication that backward does not hide. Noise can make it negative; 0 is shown.
    """
    threads = None if on_gpus() else WORKERS
    turns = [
        (
            in_fresh_processes(parts_of_replicas, sizes, seconds, WORKERS, threads=threads),
            in_fresh_processes(parts_of_ranks, sizes, seconds, ranks=WORKERS, threads=1),
        )
        for _ in range(rounds)
    ]
    rows = [
        row
        for index in range(len(sizes))
        for row in _parts(
            [of_replicas[0][index] for of_replicas, _ in turns],
            [[rank_parts[index] for rank_parts in of_ranks] for _, of_ranks in turns],
            index,
        )
    ]
    frame = pd.DataFrame(rows, columns=["index", "candidate", "part", "seconds"])
    return with_sizes(frame.drop(columns="index"), sizes, frame["index"])


def _parts(of_replicas: list[dict], of_ranks: list, index: int) -> list[tuple]:
    """Rows of one size: medians over the turns."""
    rows = [
        (of_chapter_01.candidate_name(), part, median(turn[part] for turn in of_replicas))
        for part in of_replicas[0]
    ]
    slowest = [
        [max(part) for part in zip(*step, strict=True)]
        for turn in of_ranks
        for step in zip(*turn, strict=True)
    ]
    together, alone, update = (median(times) for times in zip(*slowest, strict=True))
    rows += [
        (candidate_name(), "compute", alone),
        (candidate_name(), "optimizer", update),
        (candidate_name(), "all-reduce not hidden", max(0.0, together - alone)),
    ]
    return [(index, *row) for row in rows]


# Recorded runs


def record_timings(frame: pd.DataFrame, name: str, folder: Path = TIMINGS) -> Path:
    """Write a measurement to data/timings as CSV; return its path."""
    text = frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return write_atomically(folder / f"{name}.csv", text)


def read_timings(name: str = STEP_TIMES, folder: Path = TIMINGS) -> pd.DataFrame:
    """A measurement that `make benchmark` recorded; its column machine says where."""
    return pd.read_csv(folder / f"{name}.csv")


@figures.house_style
def breakdown_bars(table: pd.DataFrame) -> figures.Picture:
    """A panel a size, a bar a candidate: the parts of a step, as `breakdown` measures them."""
    panels = {
        "width {}, depth {}, batch {}".format(*size): 1e3
        * some.pivot(index="candidate", columns="part", values="seconds")
        .loc[some["candidate"].unique(), some["part"].unique()]
        .fillna(0)  # a part that a candidate does not have
        for size, some in table.groupby(list(Size._fields), sort=False)
    }
    picture = figures.bars(panels, "milliseconds a step", "The parts of a step")
    picture.figure.set_figheight(picture.figure.get_figheight() + 0.6)  # else the names overlap
    picture.figure.supxlabel(
        f"measured on {'; '.join(table['machine'].unique())}", x=0.01, ha="left", fontsize=9
    )
    return picture


# Workers: each runs in ranks of its own


def ranks(sizes: Sequence[Size], seconds: float) -> list[list[float]]:
    """For each size the seconds of distributed_data_parallel.py's steps on this rank."""
    device = distributed_data_parallel.setup()
    times = [
        time_steps(training_step(*_ddp_and_work(size, device)), device, seconds) for size in sizes
    ]
    dist.barrier()  # and no cleanup: a gloo group should not end before its DDP models (torch 2.13)
    return times


def parts_of_ranks(sizes: Sequence[Size], seconds: float) -> list[list[tuple[float, ...]]]:
    """For each size, a tuple a step: seconds with all-reduce, under `no_sync`, of the optimizer.

    The first two are those of forward and backward.
    """
    device = distributed_data_parallel.setup()
    times = [_parts_of_ranks(size, seconds, device) for size in sizes]
    dist.barrier()
    return times


def _parts_of_ranks(size: Size, seconds: float, device: torch.device) -> list[tuple[float, ...]]:
    ddp, work = _ddp_and_work(size, device)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=single_process.LEARNING_RATE)
    times: list[tuple[float, ...]] = []

    def clock(part: Callable[[], object]) -> float:
        return time_step(part, warm_up=0, repeats=1, device=device)[0]

    def step() -> None:
        dist.barrier()  # else one rank would start while the other is still busy
        together = clock(work)
        update = clock(lambda: (optimizer.step(), optimizer.zero_grad()))
        dist.barrier()
        with ddp.no_sync():  # around forward too: around backward alone it has no effect
            alone = clock(work)
        optimizer.zero_grad()
        times.append((together, alone, update))

    time_steps(step, device, seconds)
    return times[WARM_UP:]


def _ddp_and_work(size: Size, device: torch.device) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The DDP model, and forward and backward of this rank's rows of the batch."""
    model, images, labels = model_and_batch(size, device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return ddp, lambda: distributed_data_parallel.forward_and_backward(
        ddp, images[mine].to(device), labels[mine].to(device), size.batch
    )
