"""Sixty-four ranks on the cores of this machine: one all-reduce, against a bare fork server."""

from benchmarks import starters
from benchmarks.bare import BareForkServer
from benchmarks.table import Line, of, ratio_text, seconds_text, spread, times_as_fast
from ddp_workbook.recording.timing import compare

RANKS = 64
LIMIT = 2.5  # seconds on 2 cores


def measure(quick: bool = False) -> list[Line]:
    """One line."""
    with BareForkServer() as server:
        ways = {
            "launch": lambda: starters.by_launch(RANKS),
            "bare": lambda: starters.by_bare_fork_server(server, RANKS),
        }
        frame = compare(ways, 2 if quick else 5, warm_up=1)
    ratio = times_as_fast(frame, "launch", "bare")
    value = spread(of(frame, "launch")).median
    return [
        Line(
            f"{RANKS} ranks, one all-reduce, results back",
            seconds_text(of(frame, "launch")),
            value,
            f"bare fork server: {seconds_text(of(frame, 'bare'))}",
            ratio.median,
            ratio_text(ratio, "times as fast"),
            f"at most {LIMIT} s",
            bool(value <= LIMIT),
        )
    ]
