"""DataParallel against DistributedDataParallel against one process, measured and recorded.

Every timing is taken in fresh processes, so that no thread setting of the notebook's kernel counts,
and the candidates take turns, so that a busy machine is busy for all of them.
"""

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import pandas as pd
import torch

from ddp_workbook.errors import WorkbookError
from ddp_workbook.experiments import data_parallel
from ddp_workbook.experiments.data_parallel import Size
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.launcher.limits import usable_cores
from ddp_workbook.launcher.serialization import Call
from ddp_workbook.notebook.machine import machine_name
from ddp_workbook.recording.timing import compare

SIZES = (Size(64, 32, 64), Size(256, 8, 256), Size(1024, 4, 256), Size(1024, 4, 1024))
WORKERS = 2  # replicas and ranks
TIMINGS = Path(__file__).parents[3] / "data" / "timings"
STEP_TIMES = "dp_against_ddp"  # names of recorded runs
BREAKDOWN = "dp_and_ddp_breakdown"


def dp_against_ddp(
    sizes: Sequence[Size] = SIZES, rounds: int = 3, seconds: float = 0.1, budget: float = math.inf
) -> pd.DataFrame:
    """Step times: width, depth, batch, candidate, round, seconds, machine; a row a round.

    Each is the median of the steps that fit into about `seconds`, two at least, after a warm-up;
    a step of several ranks is as long as its slowest rank's. With two GPUs the GPUs are measured,
    else CPU cores, with threads standing in for DataParallel's devices. After `budget` seconds no
    further round is begun. The first candidate named is the baseline.
    """
    sizes = _checked(sizes)
    frame = compare(candidates(sizes, seconds), rounds, warm_up=0, budget=budget)
    return _named(frame, sizes, frame.groupby(["candidate", "round"]).cumcount())


def candidates(sizes: Sequence[Size], seconds: float) -> dict[str, Callable[[], list[float]]]:
    """The ways of training that are compared; each returns its seconds a step for every size."""
    alone = partial(_steps, data_parallel.one_process, sizes, seconds)
    split = partial(_steps, data_parallel.replicas, sizes, seconds, WORKERS)
    ranks = partial(_steps, data_parallel.ranks, sizes, seconds, ranks=WORKERS, threads=1)
    if _on_gpus():
        return {"one GPU": alone, _data_parallel(): split, _ddp(): ranks}
    threads = dict.fromkeys((1, usable_cores()))  # a single entry where there is one core
    single = {f"one process, {n} thread{'s' * (n > 1)}": partial(alone, threads=n) for n in threads}
    return {**single, _data_parallel(): partial(split, threads=WORKERS), _ddp(): ranks}


def breakdown(
    sizes: Sequence[Size] = (SIZES[0], SIZES[-1]), rounds: int = 3, seconds: float = 0.1
) -> pd.DataFrame:
    """What a step's parts take: width, depth, batch, candidate, part, seconds, machine.

    Medians of `rounds` turns. DDP's all-reduce is what synchronised steps take longer than steps
    under no_sync: the part that backward does not hide. Noise can make it negative; 0 is shown.
    """
    sizes = _checked(sizes)
    threads = None if _on_gpus() else WORKERS
    turns = [
        (
            _launch(data_parallel.parts_of_replicas, sizes, seconds, WORKERS, threads=threads),
            _launch(data_parallel.parts_of_ranks, sizes, seconds, ranks=WORKERS, threads=1),
        )
        for _ in range(rounds)
    ]
    rows = [
        row
        for index in range(len(sizes))
        for row in _parts(
            [of_replicas[0][index] for of_replicas, _ in turns],
            [[one[index] for one in of_ranks] for _, of_ranks in turns],
            index,
        )
    ]
    frame = pd.DataFrame(rows, columns=["index", "candidate", "part", "seconds"])
    return _named(frame.drop(columns="index"), sizes, frame["index"])


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
        raise WorkbookError(
            f"No run is recorded as {name!r}; recorded are: {there}.\n"
            "`make benchmark` records runs of this machine."
        )
    try:
        frame = pd.read_csv(path)
    except (ValueError, OSError) as error:  # pandas' parser errors are ValueErrors
        raise _broken(path, f"cannot be read: {error}") from None
    missing = [column for column in ("candidate", "seconds", "machine") if column not in frame]
    if missing or frame.empty:
        raise _broken(path, f"has no column {missing[0]}" if missing else "holds no timing")
    wrong = frame["seconds"][~(pd.to_numeric(frame["seconds"], errors="coerce") >= 0)]
    if len(wrong):
        raise _broken(path, f"holds a timing that is no time: {wrong.iloc[0]}")
    return frame


def _broken(path: Path, what: str) -> WorkbookError:
    return WorkbookError(f"{path} {what}.\n`make benchmark` writes it anew.")


def _checked(sizes: Sequence[Size]) -> list[Size]:
    sizes = [Size(*size) for size in sizes]
    if not sizes or any(number < 1 for size in sizes for number in size):
        raise WorkbookError("sizes must hold at least one (width, depth, batch), each 1 or more.")
    return sizes


def _named(frame: pd.DataFrame, sizes: list[Size], index: pd.Series) -> pd.DataFrame:
    """The table, its rows in order of their size, with the size in front and the machine behind."""
    columns = pd.DataFrame([sizes[i] for i in index], columns=Size._fields, index=frame.index)
    frame = pd.concat([columns, frame], axis=1).assign(machine=machine_name(gpus=_on_gpus()))
    return frame.iloc[index.argsort(kind="stable")].reset_index(drop=True)


def _parts(of_replicas: list[dict], of_ranks: list, index: int) -> list[tuple]:
    """Rows of one size: medians over the turns."""
    rows = [
        (_data_parallel(), part, median(turn[part] for turn in of_replicas))
        for part in of_replicas[0]
    ]
    slowest = [
        [max(part) for part in zip(*step, strict=True)]
        for turn in of_ranks
        for step in zip(*turn, strict=True)
    ]
    together, alone, update = (median(times) for times in zip(*slowest, strict=True))
    rows += [
        (_ddp(), "compute", alone),
        (_ddp(), "optimizer", update),
        (_ddp(), "all-reduce not hidden", max(0.0, together - alone)),
    ]
    return [(index, *row) for row in rows]


def _steps(worker: Callable, *args, ranks: int = 1, threads: int | None = None) -> list[float]:
    """For each size the median step of a launch; a step is as long as its slowest rank's."""
    of_sizes = zip(*_launch(worker, *args, ranks=ranks, threads=threads), strict=True)
    return [median(map(max, zip(*of_ranks, strict=True))) for of_ranks in of_sizes]


def _launch(worker: Callable, *args, ranks: int = 1, threads: int | None = None) -> list:
    # One GPU helps neither two replicas nor two ranks: then nobody gets it, or nothing compares.
    hidden = {} if _on_gpus() else {"CUDA_VISIBLE_DEVICES": ""}
    return run_ranks(
        Call(worker, args), ranks, 300, quiet=True, threads=threads, environment=hidden
    )


def _on_gpus() -> bool:
    return torch.cuda.device_count() >= WORKERS


def _data_parallel() -> str:
    if _on_gpus():
        return f"DataParallel, {WORKERS} GPUs"
    return f"DataParallel, {WORKERS} replicas (stand-in: CPU threads)"


def _ddp() -> str:
    return f"DDP, {WORKERS} {'GPUs' if _on_gpus() else 'ranks'}"
