"""The cost of the DDP chapter's step, and of `launch` itself, against the barest loop."""

from collections.abc import Callable
from statistics import median

import pandas as pd

from benchmarks.bare import BareForkServer
from benchmarks.table import Line, Spread, of, ratio_text, seconds_text, spread, times_as_fast
from benchmarks.workers.steps import bare_loop, compare_loops
from ddp_workbook.chapters.distributed_data_parallel import BATCH_SIZE, DEPTH, WIDTH
from ddp_workbook.launcher.calls import Call
from ddp_workbook.launcher.launch import run_ranks
from ddp_workbook.recording.timing import compare

RANKS = 2
MOST = 1.03  # times as long
CHAPTER = (WIDTH, DEPTH, BATCH_SIZE)
LARGE = (1024, 4, 256)  # width, depth, batch: what the notebooks compare timings on
CONTENTS = (
    "The step is that of the chapter's own train(): pick the batch, zero_grad, cut this rank's "
    "rows, forward, its share of the loss, backward through DDP, optimizer, keep the loss (summed "
    "over the ranks once, after the loop). The barest loop: pick this rank's rows, zero_grad, "
    "forward, mean loss, backward through DDP, optimizer. Same ranks, model, data, in turns by "
    "step; medians of full batches, the slower rank counts."
)
READY = "Here the barest loop has its rows in memory before the clock starts."
SURROUNDINGS = (
    "The barest loop alone, in ranks of `launch` and in ranks of a bare fork server, in turns."
)

OTHERS = {
    "rows picked": "the barest loop",
    "rows ready": "the barest loop, rows ready",
    "bare": "a bare fork server",
}


def measure(quick: bool = False) -> list[Line]:
    """Four lines: the chapter's step at two sizes, one without picking, and the surroundings."""
    small = in_the_same_ranks(CHAPTER, 15 if quick else 100)
    found = [
        _against(small, "rows picked", f"the DDP chapter's step, {_size(CHAPTER)}", MOST, CONTENTS),
        _against(small, "rows ready", "the same, against rows that are ready", None, READY),
    ]
    large = in_the_same_ranks(LARGE, 3 if quick else 8)
    found.append(
        _against(large, "rows picked", f"the DDP chapter's step, {_size(LARGE)}", MOST, "")
    )
    return [*found, surroundings(3 if quick else 8)]


def in_the_same_ranks(size: tuple[int, int, int], rounds: int) -> pd.DataFrame:
    """Seconds of a step in each loop: a row for each round, the slower rank's median."""
    call = Call(compare_loops, (rounds, *size))
    of_ranks = run_ranks(call, RANKS, 600, quiet=True, threads=1, environment=_no_gpu())
    rows = [
        (loop, number, max(seconds))
        for loop in of_ranks[0]
        for number, seconds in enumerate(zip(*(one[loop] for one in of_ranks), strict=True))
    ]
    return pd.DataFrame(rows, columns=["candidate", "round", "seconds"])


def surroundings(rounds: int) -> Line:
    """The barest loop under `launch` against the same under a bare fork server."""
    epochs = 8
    call = Call(bare_loop, (epochs, *CHAPTER))

    def under_launch(**more: str) -> float:
        of_ranks = run_ranks(call, RANKS, 600, quiet=True, threads=1, environment=_no_gpu() | more)
        return _slower(of_ranks)

    with BareForkServer() as server:
        ways: dict[str, Callable[[], float]] = {
            "launch": under_launch,
            "without": lambda: under_launch(TORCH_FR_BUFFER_SIZE="0"),
            "bare": lambda: _slower(server.run(bare_loop, epochs, *CHAPTER, ranks=RANKS)[1]),
        }
        frame = compare(ways, rounds, warm_up=0)
    recorder = times_as_long(frame, "launch", "without")
    note = f"{SURROUNDINGS} Of it, the flight recorder: {ratio_text(recorder, 'times as long')}."
    return _line(frame, "launch", "bare", "the barest step, in ranks of launch", None, note)


def _slower(of_ranks: list[list[float]]) -> float:
    return median(max(epoch) for epoch in zip(*of_ranks, strict=True))


def _against(frame: pd.DataFrame, other: str, what: str, most: float | None, note: str) -> Line:
    return _line(frame, "chapter", other, what, most, note)


def _line(
    frame: pd.DataFrame, mine: str, other: str, what: str, most: float | None, note: str
) -> Line:
    ratio = times_as_long(frame, mine, other)
    return Line(
        what,
        seconds_text(of(frame, mine)),
        spread(of(frame, mine)).median,
        f"{OTHERS[other]}: {seconds_text(of(frame, other))}",
        ratio.median,
        ratio_text(ratio, "times as long"),
        f"at most {most} times" if most else "",
        bool(ratio.median <= most) if most else None,
        note,
    )


def times_as_long(frame: pd.DataFrame, candidate: str, other: str) -> Spread:
    """How many times as long as `other` the candidate took, from the rounds of one frame."""
    return times_as_fast(frame, other, baseline=candidate)


def _size(size: tuple[int, int, int]) -> str:
    return "width {}, depth {}, batch {}".format(*size)


def _no_gpu() -> dict[str, str]:
    """Run both loops on the CPU, for which the target is meant."""
    return {"CUDA_VISIBLE_DEVICES": ""}
