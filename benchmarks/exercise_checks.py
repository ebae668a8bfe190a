"""How long a reader waits for the verdict on a right attempt, and on one that hangs."""

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator

from benchmarks.table import Line, at_most, seconds_text, spread, worst_text
from ddp_workbook.judging.catalogue import Exercise, names
from ddp_workbook.judging.judge import examine
from ddp_workbook.judging.verdict import NOT_YET, SOLVED

MEDIAN_LIMIT_S, SLOWEST_LIMIT_S = (
    0.6,
    1.5,
)  # seconds for a whole check: the median, and the slowest exercise
HANG_LIMIT_S = 8.0  # seconds for a verdict "hangs" or "does not end"
ROUNDS = 5
HANG_WORDS = re.compile("hangs|does not end")
HANGING = "mean_over_ranks"
HANGS = {
    "an endless loop": f"def {HANGING}(value):\n    while True:\n        pass\n",
    "C code that keeps Python's lock": f"def {HANGING}(value):\n    return sum(iter(int, 1))\n",
    "a collective that one rank does not enter": f"""import time
import torch.distributed as dist
def {HANGING}(value):
    if dist.get_rank():
        time.sleep(100)
    dist.barrier()
    return value
""",
}


def measure(quick: bool = False) -> list[Line]:
    """A line for the median over the exercises, one for the slowest, one for those that hang."""
    with own_folder():
        took = seconds_by_exercise(1 if quick else ROUNDS)
        late = seconds_to_verdict(list(HANGS)[:1] if quick else list(HANGS))
    return lines(took, late)


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """Save attempts in a temporary folder, not beside the reader's own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


def seconds_by_exercise(rounds: int) -> dict[str, list[float]]:
    """Seconds of each check of the solution, by exercise and round, after an uncounted round."""
    exercises = [Exercise(name) for name in names()]
    took = {exercise.name: [] for exercise in exercises}
    for number in range(rounds + 1):
        for exercise in exercises:
            start = time.monotonic()
            verdict = examine(exercise, exercise.solution)
            if number:  # the first one may import, and start the fork server
                took[exercise.name].append(time.monotonic() - start)
            if verdict.kind != SOLVED:
                raise AssertionError(f"the solution is not right: {verdict!r}")
    return took


def seconds_to_verdict(hangs: list[str]) -> dict[str, float]:
    """Seconds until the verdict, by kind of hang."""
    took = {}
    for name in hangs:
        start = time.monotonic()
        verdict = examine(Exercise(HANGING), HANGS[name])
        took[name] = time.monotonic() - start
        if verdict.kind != NOT_YET or not HANG_WORDS.search(verdict.title):
            raise AssertionError(f"{name}: {verdict!r}")
    return took


def lines(took: dict[str, list[float]], late: dict[str, float]) -> list[Line]:
    """The table's lines for these timings."""
    medians = {name: spread(seconds).median for name, seconds in took.items()}
    slowest = max(medians, key=medians.get)
    middle = spread(medians.values()).median
    by_exercise = "; ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
    worst = max(late, key=late.get)
    usual = f"check of an exercise's solution, warm: median of {len(took)} exercises"
    whole = Line(usual, seconds_text(medians.values()), middle, note=by_exercise)
    longest = Line(f"the slowest of them: {slowest}", worst_text(took[slowest]), max(took[slowest]))
    hangs = "verdict on an attempt that does not end"
    hang_line = Line(hangs, worst_text(late.values()), late[worst], f"worst: {worst}")
    return [
        at_most(whole, MEDIAN_LIMIT_S),
        at_most(longest, SLOWEST_LIMIT_S),
        at_most(hang_line, HANG_LIMIT_S),
    ]
