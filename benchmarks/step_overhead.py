"""The cost of the DDP chapter's step, and of `launch` itself, against the barest loop."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pandas as pd

from benchmarks.bare import BareForkServer
from benchmarks.table import Line, beside, ratio_text, times_as_fast
from benchmarks.workers.steps import BAREST, READY, bare_loop, compare_loops
from ddp_workbook.chapters.distributed_data_parallel import BATCH_SIZE, DEPTH, WIDTH
from manyranks.launcher.calls import Call
from manyranks.launcher.launch import run_ranks
from manyranks.recording.timing import compare

RANKS = 2
MAX_RATIO = 1.03  # times as long
CHAPTER = (WIDTH, DEPTH, BATCH_SIZE)
LARGE = (1024, 4, 256)  # width, depth, batch: what the notebooks compare timings on
CONTENTS = (
    "The step is that of the chapter's own train(): pick the batch, zero_grad, cut this rank's "
    "rows, forward, its share of the loss, backward through DDP, optimizer, keep the loss (summed "
    "over the ranks once, after the loop). The barest loop: pick this rank's rows, zero_grad, "
    "forward, mean loss, backward through DDP, optimizer. Same ranks, model, data, in turns by "
    "step; medians of full batches, the slower rank counts."
)
READY_ROWS_NOTE = "Here the barest loop has its rows in memory before the clock starts."
SURROUNDINGS = (
    "The barest loop alone, in ranks of `launch` and in ranks of a bare fork server, in turns."
)


def measure(quick: bool = False) -> list[Line]:
    """Four lines: the chapter's step at two sizes, one without picking, and the surroundings."""
    small = step_seconds(CHAPTER, 15 if quick else 100)
    large = step_seconds(LARGE, 3 if quick else 8)
    without_picking = "the same, against rows that are ready"
    return [
        chapters_step(small, CHAPTER, CONTENTS),
        beside(small, without_picking, "chapter", READY, longer=True, note=READY_ROWS_NOTE),
        chapters_step(large, LARGE),
        surroundings(3 if quick else 8),
    ]


def chapters_step(frame: pd.DataFrame, size: tuple[int, int, int], note: str = "") -> Line:
    """The chapter's step against the barest loop, with the target."""
    what = "the DDP chapter's step, width {}, depth {}, batch {}".format(*size)
    line = beside(frame, what, "chapter", BAREST, longer=True, note=note)
    return replace(line, target=f"at most {MAX_RATIO} times", met=bool(line.ratio <= MAX_RATIO))


def step_seconds(size: tuple[int, int, int], rounds: int) -> pd.DataFrame:
    """Seconds of a step in each loop: a row for each round, the slower rank's median."""
    call = Call(compare_loops, (rounds, *size))
    of_ranks = run_ranks(call, RANKS, 600, quiet=True, threads=1, environment=_no_gpu())
    rows = [
        (loop, number, max(seconds))
        for loop in of_ranks[0]
        for number, seconds in enumerate(
            zip(*(rank_times[loop] for rank_times in of_ranks), strict=True)
        )
    ]
    return pd.DataFrame(rows, columns=["candidate", "round", "seconds"])


def surroundings(rounds: int) -> Line:
    """The barest loop under `launch` against the same under a bare fork server."""
    settings = (8, *CHAPTER)  # epochs, then the sizes
    call = Call(bare_loop, settings)

    def under_launch(**more: str) -> float:
        of_ranks = run_ranks(call, RANKS, 600, quiet=True, threads=1, environment=_no_gpu() | more)
        return _slower(of_ranks)

    with BareForkServer() as server:
        ways: dict[str, Callable[[], float]] = {
            "launch": under_launch,
            "without": lambda: under_launch(TORCH_FR_BUFFER_SIZE="0"),
            "a bare fork server": lambda: _slower(server.run(bare_loop, *settings, ranks=RANKS)[1]),
        }
        frame = compare(ways, rounds, warm_up=0)
    recorder = times_as_fast(frame, "without", "launch")
    note = f"{SURROUNDINGS} Of it, the flight recorder: {ratio_text(recorder, 'times as long')}."
    what = "the barest step, in ranks of launch"
    return beside(frame, what, "launch", "a bare fork server", longer=True, note=note)


def _slower(of_ranks: list[list[float]]) -> float:
    return median(max(epoch) for epoch in zip(*of_ranks, strict=True))


def _no_gpu() -> dict[str, str]:
    """Run both loops on the CPU, for which the target is meant."""
    return {"CUDA_VISIBLE_DEVICES": ""}
