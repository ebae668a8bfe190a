"""406 billion parameters cut by `fully_shard` for 1,024 fake ranks: seconds and peak memory.

Beside it the plan of the same model, which needs arithmetic alone. Each in a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.table import Line, at_most, seconds_text, spread

ROOT = Path(__file__).parents[1]
LIMIT_S, LIMIT_GIB = 4.0, 1.0  # limits
ROUNDS, QUICK = 5, 2
# Not ru_maxrss on Linux: it starts with the value of the process that this one was forked from.
PEAK = """
import pathlib, re, resource
status = pathlib.Path("/proc/self/status")
kib = re.findall(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else []
peak = int(kib[0]) * 1024 if kib else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""
PROGRAM = """
import json, time
{imports}
start = time.perf_counter()
{work}
seconds = time.perf_counter() - start
{peak}
print(json.dumps([seconds, peak]))
"""
PLAN_TEXT = PROGRAM.format(
    peak=PEAK,
    imports="from manyranks.planning.plan import plan",
    work="plan('405B', 1024)",
)
CUT = PROGRAM.format(
    peak=PEAK,
    imports="from manyranks.planning.plan import plan\n"
    "from ddp_workbook.experiments.fully_sharded.planning import sharded_by_torch",
    work="made = plan('405B', 1024)\nassert sharded_by_torch(made) == made.ledger.parameters",
)


def measure(quick: bool = False) -> list[Line]:
    """Two lines: seconds, and memory."""
    runs: dict[str, list[tuple[float, int]]] = {"plan": [], "cut": []}
    for _ in range(QUICK if quick else ROUNDS):
        runs["plan"].append(run(PLAN_TEXT))
        runs["cut"].append(run(CUT))
    seconds = {name: [second for second, _ in timings] for name, timings in runs.items()}
    peaks = {name: max(peak for _, peak in timings) / 2**30 for name, timings in runs.items()}
    whole = Line(
        "406 B parameters cut by fully_shard for 1,024 fake ranks",
        seconds_text(seconds["cut"]),
        spread(seconds["cut"]).median,
        f"their plan: {seconds_text(seconds['plan'])}",
    )
    return [
        at_most(whole, LIMIT_S),
        Line(
            "the same: peak memory of its process",
            f"{peaks['cut']:.2f} GiB",
            peaks["cut"],
            f"their plan: {peaks['plan']:.2f} GiB",
            target=f"at most {LIMIT_GIB:.0f} GiB",
            met=bool(peaks["cut"] <= LIMIT_GIB),
        ),
    ]


def run(program: str) -> tuple[float, int]:
    """Seconds of the work and peak bytes of a new process that does it."""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, peak = json.loads(result.stdout)
    return seconds, peak
