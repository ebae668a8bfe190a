"""How long after a fault the cell returns: a killed rank, a crash, a hang, an interrupt."""

import contextlib
import io
import tempfile
import time
from pathlib import Path

from benchmarks.kernel_faults import kernel_faults
from benchmarks.table import Line, at_most, worst_text
from benchmarks.workers.failing import fail
from ddp_workbook import RankFailed, launch

RANKS = 4
LIMIT_S = 2.0  # seconds after the event
TIMEOUT_S = 1.5  # seconds of a launch that hangs; it must have reached its hang by then
HANGS = ["endless loop", "stuck in gloo"]
FAULTS = {
    "cell returns after: a rank is killed (SIGKILL)": ["SIGKILL"],
    "cell returns after: a rank crashes or leaves": [
        "raise", "os._exit(3)", "sys.exit(4)", "segmentation fault", "abort", "early return",
        "result that cannot be pickled",
    ],
    "cell returns after: the time limit of ranks that hang": HANGS,
}  # fmt: skip
NOTE = (
    f"The others of {RANKS} ranks wait in an all-reduce. The failing rank notes the moment; the "
    "time ends when `launch` has raised, with its report made and all ranks ended."
)


def measure(quick: bool = False) -> list[Line]:
    """A line for each group of faults, then the lines of a real kernel."""
    rounds = 1 if quick else 4
    rows = []
    for group, kinds in FAULTS.items():
        took = {kind: [seconds_after(kind) for _ in range(rounds)] for kind in kinds}
        rows.append(line(group, took, NOTE if not rows else ""))
    ways = kernel_faults(interrupts=1 if quick else 4)
    return rows + [line(event, {event: seconds}) for event, seconds in ways.items()]


def line(what: str, took: dict[str, list[float]], note: str = "") -> Line:
    """The worst of all timings, and which kind of fault it was if there are several."""
    seconds = [timing for kind in took.values() for timing in kind]
    slowest = max(took, key=lambda kind: max(took[kind]))
    kinds = f"slowest of {len(took)} kinds: {slowest}" if len(took) > 1 else ""
    return at_most(Line(what, worst_text(seconds), max(seconds), kinds, note=note), LIMIT_S)


def seconds_after(kind: str) -> float:
    """Seconds from the failure, or from the end of the timeout, until `launch` has raised."""
    hangs = kind in HANGS
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        note = Path(folder) / "moment"
        start = time.monotonic()
        with contextlib.suppress(RankFailed):
            launch(fail, kind, 1, str(note), ranks=RANKS, timeout=TIMEOUT_S if hangs else 60)
            raise AssertionError(f"{kind}: launch returned though rank 1 failed")
        end = time.monotonic()
        return end - (start + TIMEOUT_S if hangs else float(note.read_text()))
