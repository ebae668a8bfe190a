"""DDP on two ranks against one process, where there is enough to compute."""

from benchmarks.table import Line, at_least, beside
from ddp_workbook.experiments.data_parallel.step_times import Size
from ddp_workbook.experiments.distributed_data_parallel.step_times import candidates
from manyranks.recording.timing import compare

COMPUTE_BOUND = Size(width=1024, depth=4, batch=1024)
MIN_RATIO = 1.6  # times as fast, on 2 cores


def measure(quick: bool = False) -> list[Line]:
    """One line; one process and DDP take turns, all others of the chapter's candidates stay out."""
    ways = candidates([COMPUTE_BOUND], seconds=0.5 if quick else 1.0)
    alone, *_, ddp = ways
    frame = compare({name: ways[name] for name in (alone, ddp)}, 3 if quick else 7, warm_up=0)
    size = ", ".join(f"{name} {value}" for name, value in COMPUTE_BOUND._asdict().items())
    what = f"{ddp}, 1 thread each, a step of {size}"
    return [at_least(beside(frame, what, ddp, alone), MIN_RATIO)]
