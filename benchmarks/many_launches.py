"""A thousand launches in a row, every tenth failing on purpose: what hangs, leaks or errs.

They run in a process of their own with its own folder for temporary files, so that what is counted
is theirs alone.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.table import Line
from benchmarks.traces import MARK, count_files, marked_processes

ROOT = Path(__file__).parents[1]
LAUNCHES, QUICK = 1000, 100
START_S = 600  # seconds for the start, the imports and the first launches on a busy machine, plus
SLOWEST_LAUNCH_S = 1.5  # seconds for each launch on average; after that the run counts as hung
GRACE_S = 2.0  # seconds in which all processes must be gone after the last launch
COUNTS = {
    "hung": "launches that did not come back in time",
    "wrong": "wrong verdicts or results",
    "orphans": "processes left",
    "descriptors": "descriptors leaked",
    "threads": "threads leaked",
    "files": "temporary files left",
}


def measure(quick: bool = False) -> list[Line]:
    """One line: all counts, which must be 0, and the seconds in all."""
    count = QUICK if quick else LAUNCHES
    counts = run(count)
    bad = {words: counts[name] for name, words in COUNTS.items() if counts[name]}
    problems = ", ".join(f"{number} {words}" for words, number in bad.items())
    spelt = ", ".join(f"{name} {times}" for name, times in counts["kinds"].items())
    return [
        Line(
            f"{count} launches of 2 to 4 ranks in a row, 1 in 10 failing on purpose",
            problems or f"0 {', 0 '.join(COUNTS.values())}",
            sum(bad.values()),
            f"{counts['seconds']:.0f} s in all",
            target="all counts 0",
            met=not bad,
            note=" ".join([f"Failures on purpose: {spelt}.", *counts["examples"]]),
        )
    ]


def run(count: int) -> dict:
    """The counts of one run in a separate process."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        counts = _run_inside(count, folder, mark)
        end = time.monotonic() + GRACE_S
        while (remaining := marked_processes(mark)) and time.monotonic() < end:
            time.sleep(0.05)
        for process in remaining:
            process.kill()
        counts["orphans"] = max(counts["orphans"], len(remaining))
        counts["files"] = max(counts["files"], count_files(folder))
    return counts


def _run_inside(count: int, folder: str, mark: str) -> dict:
    """Run the launches with temporary files in `folder`; a run that never ends is one hang."""
    try:
        result = subprocess.run(
            [sys.executable, "-m", "benchmarks.launch_often", str(count)],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": folder, MARK: mark},
            stdout=subprocess.PIPE,
            text=True,
            timeout=START_S + count * SLOWEST_LAUNCH_S,
            check=True,
        )
        return json.loads(result.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as expired:
        nothing = dict.fromkeys(COUNTS, 0) | {"hung": 1, "kinds": {}}
        return nothing | {"seconds": expired.timeout, "examples": ["The run was stopped."]}
