"""DataParallel against DDP against one process: the run that chapter 02 shows as recorded."""

from datetime import date
from pathlib import Path

import pandas as pd

from benchmarks.table import Line, beside
from ddp_workbook.experiments.distributed_data_parallel import step_times
from manyranks.figures import speed_up_plot, step_time_plot
from manyranks.recording.timing import speed_up

FIGURES = Path(__file__).parents[1] / "figs"
STEM = "distributed_data_parallel"
SIZE = ["width", "depth", "batch"]


def measure(quick: bool = False) -> list[Line]:
    """A line for DataParallel and one for DDP at each size; not quick, it writes data and pictures.

    A quick run measures the smallest and the largest size only, and writes nothing.
    """
    sizes = step_times.SIZES[:: len(step_times.SIZES) - 1] if quick else step_times.SIZES
    steps = step_times.dp_against_ddp(sizes, rounds=2 if quick else 5, seconds=0.3)
    names = list(steps["candidate"].unique())  # the baseline first
    if not quick:
        parts = step_times.breakdown(rounds=5, seconds=0.3)
        record(steps, parts)
    return lines(steps, names)


def record(steps: pd.DataFrame, parts: pd.DataFrame) -> list[Path]:
    """Write both tables and the three pictures, with the date after the machine's name."""
    steps, parts = _with_date(steps), _with_date(parts)
    return [
        step_times.record_timings(steps, step_times.STEP_TIMES),
        step_times.record_timings(parts, step_times.BREAKDOWN),
        *draw(steps, parts, FIGURES),
    ]


def draw(steps: pd.DataFrame, parts: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the pictures of a recorded run to `folder`; its first candidate is the baseline."""
    baseline = steps["candidate"].iloc[0]
    pictures = {
        "step_time": step_time_plot(steps),
        "speed_up": speed_up_plot(speed_up(steps, baseline), baseline),
        "breakdown": step_times.breakdown_bars(parts),
    }
    return [picture.save(folder / f"{STEM}_{name}.svg") for name, picture in pictures.items()]


def lines(steps: pd.DataFrame, names: list[str]) -> list[Line]:
    """How DataParallel and DDP compare with the baseline, `names[0]`, at each size."""
    step = "{}, a step of width {}, depth {}, batch {}"
    return [
        beside(frame, step.format(name, *size), name, names[0])
        for size, frame in steps.groupby(SIZE, sort=False)
        for name in names[-2:]
    ]


def _with_date(frame: pd.DataFrame) -> pd.DataFrame:
    # In the machine's column, because another column would look like something that was timed.
    return frame.assign(machine=frame["machine"] + f", {date.today().isoformat()}")
