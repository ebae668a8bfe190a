"""Sixty-four ranks on the cores of this machine: one all-reduce, against a bare fork server."""

from benchmarks import starters
from benchmarks.bare import BareForkServer
from benchmarks.table import Line, at_most, beside
from manyranks.recording.timing import compare

RANKS = 64
LIMIT_S = 2.5  # seconds on 2 cores


def measure(quick: bool = False) -> list[Line]:
    """One line."""
    with BareForkServer() as server:
        ways = {
            "launch": lambda: starters.by_launch(RANKS),
            "bare fork server": lambda: starters.by_bare_fork_server(server, RANKS),
        }
        frame = compare(ways, 2 if quick else 5, warm_up=1)
    what = f"{RANKS} ranks, one all-reduce, results back"
    return [at_most(beside(frame, what, "launch", "bare fork server"), LIMIT_S)]
