"""DataParallel against DistributedDataParallel against one process, measured and recorded.

Every timing is taken in fresh processes, so that no thread setting of the notebook's kernel counts,
and the candidates take turns, so that a busy machine is busy for all of them.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import pandas as pd
import torch

from ddp_workbook import measured_steps
from ddp_workbook.measured_steps import Size
from ddp_workbook.workbench.errors import WorkbookError
from ddp_workbook.workbench.launch import run_ranks
from ddp_workbook.workbench.machine import machine_name, usable_cores
from ddp_workbook.workbench.parcels import Call
from ddp_workbook.workbench.timing import compare

SIZES = (Size(64, 32, 64), Size(256, 8, 256), Size(1024, 4, 256), Size(1024, 4, 1024))
WORKERS = 2  # replicas and ranks
TIMINGS = Path(__file__).parents[2] / "data" / "timings"
STEP_TIMES = "dp_against_ddp"  # names of recorded runs
BREAKDOWN = "dp_and_ddp_breakdown"


def dp_against_ddp(sizes: Sequence[Size] = SIZES, rounds: int = 3,
                   seconds: float = 0.1) -> pd.DataFrame:
    """Step times: width, depth, batch, candidate, round, seconds, machine; a row a round.

    Each is the median of the steps that fit into about `seconds`, three at least, after a warm-up;
    a step of several ranks is as long as its slowest rank's. With two GPUs the GPUs are measured,
    else CPU cores, with threads standing in for DataParallel's devices.
    """
    return _each_size(sizes, lambda size: compare(candidates(size, seconds), rounds, warm_up=0))


def candidates(size: Size, seconds: float = 0.1) -> dict[str, Callable[[], float]]:
    """The ways of training that are compared, each a function that returns seconds a step.

    The first one is the baseline.
    """
    alone = partial(_median_step, measured_steps.one_process, size, seconds)
    split = partial(_median_step, measured_steps.replicas, size, seconds, WORKERS)
    ranks = partial(_median_step, measured_steps.ranks, size, seconds, ranks=WORKERS, threads=1)
    if _on_gpus():
        return {"one GPU": alone, _data_parallel(): split, _ddp(): ranks}
    cores = usable_cores()
    all_threads = {f"one process, {cores} threads": partial(alone, threads=cores)}
    return {"one process, 1 thread": partial(alone, threads=1), **(all_threads if cores > 1 else {}),
            _data_parallel(): partial(split, threads=WORKERS), _ddp(): ranks}


def breakdown(sizes: Sequence[Size] = (SIZES[0], SIZES[-1]), rounds: int = 3,
              seconds: float = 0.1) -> pd.DataFrame:
    """What a step's parts take: width, depth, batch, candidate, part, seconds, machine.

    Medians of `rounds` turns. DDP's all-reduce is what synchronised steps take longer than steps
    under no_sync: the part that backward does not hide. Noise can make it negative; 0 is shown.
    """
    return _each_size(sizes, lambda size: _parts(size, rounds, seconds))


def record_timings(frame: pd.DataFrame, name: str, folder: Path = TIMINGS) -> Path:
    """Write a measurement to data/timings as CSV, whole or not at all; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        frame.to_csv(part, index=False, float_format="%.6g", lineterminator="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def recorded_timings(name: str = STEP_TIMES, folder: Path = TIMINGS) -> pd.DataFrame:
    """A measurement that `make benchmark` recorded; its column machine says where.

    Raises WorkbookError where there is none of that name, or the file is no table of timings.
    """
    path = folder / f"{name}.csv"
    if not path.is_file():
        there = ", ".join(sorted(file.stem for file in folder.glob("*.csv"))) or "none"
        raise WorkbookError(f"No run is recorded as {name!r}; recorded are: {there}.\n"
                            "`make benchmark` records runs of this machine.")
    try:
        frame = pd.read_csv(path)
        missing = [column for column in ("candidate", "seconds", "machine") if column not in frame]
        wrong = f"has no column {missing[0]}" if missing else "holds no timing"
        if missing or frame.empty or not (pd.to_numeric(frame["seconds"]) >= 0).all():
            raise ValueError(wrong)
    except ValueError as error:  # pandas' own parser errors are ValueErrors too
        raise WorkbookError(f"{path} {error}.\n`make benchmark` writes it anew.") from None
    return frame


def _each_size(sizes: Sequence[Size], measure: Callable[[Size], pd.DataFrame]) -> pd.DataFrame:
    frames = []
    for size in sizes:
        frame = measure(Size(*size))
        for place, (column, value) in enumerate(zip(Size._fields, size, strict=True)):
            frame.insert(place, column, value)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True).assign(machine=machine_name(gpus=_on_gpus()))


def _parts(size: Size, rounds: int, seconds: float) -> pd.DataFrame:
    of_replicas, of_ranks = [], []
    for _ in range(rounds):
        of_replicas += _launch(measured_steps.parts_of_replicas, size, seconds, WORKERS,
                               threads=None if _on_gpus() else WORKERS)
        of_ranks.append(_slowest(_launch(measured_steps.parts_of_ranks, size, seconds,
                                         ranks=WORKERS, threads=1)))
    rows = [(_data_parallel(), part, median(one[part] for one in of_replicas))
            for part in of_replicas[0]]
    both, alone, update = (median(times) for times in zip(*of_ranks, strict=True))
    rows += [(_ddp(), "compute", alone), (_ddp(), "all-reduce not hidden", max(0.0, both - alone)),
             (_ddp(), "optimizer", update)]
    return pd.DataFrame(rows, columns=["candidate", "part", "seconds"])


def _slowest(of_ranks: list[list[tuple[float, ...]]]) -> list[float]:
    """For each part the median over the steps of what the slowest rank took."""
    steps = zip(*of_ranks, strict=True)
    slowest = [[max(part) for part in zip(*step, strict=True)] for step in steps]
    return [median(part) for part in zip(*slowest, strict=True)]


def _median_step(worker: Callable, *args, ranks: int = 1, threads: int | None = None) -> float:
    of_ranks = _launch(worker, *args, ranks=ranks, threads=threads)
    return median(max(step) for step in zip(*of_ranks, strict=True))


def _launch(worker: Callable, *args, ranks: int = 1, threads: int | None = None) -> list:
    # One GPU helps neither two replicas nor two ranks: then nobody gets it, or nothing compares.
    hidden = {} if _on_gpus() else {"CUDA_VISIBLE_DEVICES": ""}
    return run_ranks(Call(worker, args), ranks, 300, quiet=True, threads=threads,
                     environment=hidden)


def _on_gpus() -> bool:
    return torch.cuda.device_count() >= WORKERS


def _data_parallel() -> str:
    if _on_gpus():
        return f"DataParallel, {WORKERS} GPUs"
    return f"DataParallel, {WORKERS} replicas (stand-in: CPU threads)"


def _ddp() -> str:
    return f"DDP, {WORKERS} {'GPUs' if _on_gpus() else 'ranks'}"
