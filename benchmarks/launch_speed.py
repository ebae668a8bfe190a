"""How long a launch takes, compared with other ways to start the same worker."""

import pandas as pd

from benchmarks import starters
from benchmarks.bare import BareForkServer
from benchmarks.table import Line, at_least, at_most, beside, of, seconds_text, spread
from manyranks.recording.timing import compare

RANKS = 4
LIMIT_S = 0.25  # seconds
FASTER = {"mp.spawn": 20, "torchrun": 10}  # times; the bare fork server is the floor, no target
NOTE = (
    "The worker joins a gloo group, adds one number, returns it. mp.spawn runs it in this "
    "process's children, results through a queue; torchrun is the command line, results printed, "
    "its own start included; the bare fork server has torch preloaded, and no streams, no "
    "verdicts, no lifelines."
)


def measure(quick: bool = False) -> list[Line]:
    """A line for a warm launch, one for each other way, one for the first launch of a process."""
    with BareForkServer() as server:
        starters.by_bare_fork_server(server, RANKS)
        starters.by_launch(RANKS)  # both fork servers are warm from here on
        frame = compare(candidates(server, 5), 2 if quick else 5, warm_up=0)
    first = [starters.first_launch(RANKS) for _ in range(1 if quick else 3)]
    return lines(frame, first)


def candidates(server: BareForkServer, times: int) -> dict:
    """Each way of starting; the fast ones `times` times a turn."""
    return {
        "launch": starters.several(lambda: starters.by_launch(RANKS), times),
        "bare fork server": starters.several(
            lambda: starters.by_bare_fork_server(server, RANKS), times
        ),
        "mp.spawn": lambda: starters.by_spawn(RANKS),
        "torchrun": lambda: starters.by_torchrun(RANKS),
    }


def lines(frame: pd.DataFrame, first: list[float]) -> list[Line]:
    """The table's lines for these timings."""
    warm = of(frame, "launch")
    what = f"launch, warm: {RANKS} ranks, one all-reduce, results back"
    rows = [at_most(Line(what, seconds_text(warm), spread(warm).median, note=NOTE), LIMIT_S)]
    for way in ("mp.spawn", "torchrun", "bare fork server"):
        line = beside(frame, f"launch against {way}", "launch", way)
        rows.append(at_least(line, FASTER[way]) if way in FASTER else line)
    return [*rows, Line("the first launch of a new process", seconds_text(first), min(first))]
