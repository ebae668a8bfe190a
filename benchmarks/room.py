"""A room that shares a machine: sixteen readers press Shift-Enter at the same moment.

Each is a process with its own fork server, like a kernel. No right answer may be reported as
hanging, however long it takes, and every answer that hangs must be.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchmarks.table import Line
from ddp_workbook.judging.catalogue import names

READERS = 16
TIMEOUT_S = 600.0  # seconds for the whole room
HANGING = """
import torch, torch.distributed as dist
def mean_over_ranks(value):
    total = torch.tensor(value)
    if dist.get_rank() == 0:
        dist.all_reduce(total)
    return total.item()
"""
READER = """
import sys
from ddp_workbook.judging.catalogue import find
from ddp_workbook.judging.judge import examine
if __name__ == "__main__":
    name, code = sys.argv[1], sys.argv[2]
    sys.stdin.readline()
    verdict = examine(find(name), code or find(name).solution)
    print(verdict.kind if verdict.kind == "solved" else verdict)
"""


def measure(quick: bool = False) -> list[Line]:
    """A line for sixteen right answers, and one for sixteen that hang."""
    readers = 2 if quick else READERS
    exercises = [names()[n % len(names())] for n in range(readers)]
    right, took = verdicts([(name, "") for name in exercises])
    wrong, _ = verdicts([("mean_over_ranks", HANGING)] * readers)
    solved = sum(verdict.strip().endswith("solved") for verdict in right)
    hanging = sum("hangs" in verdict for verdict in wrong)
    failed = [verdict for verdict in right if not verdict.strip().endswith("solved")]
    return [
        Line(
            f"{readers} kernels check a right answer at the same moment: accepted",
            f"{solved} of {readers}", float(solved), f"all there after {took:.0f} s",
            target=f"{readers}", met=solved == readers, note="\n".join(failed),
        ),
        Line(
            f"{readers} kernels check one that hangs: told so",
            f"{hanging} of {readers}", float(hanging),
            target=f"{readers}", met=hanging == readers,
        ),
    ]  # fmt: skip


def verdicts(attempts: Sequence[tuple[str, str]]) -> tuple[list[str], float]:
    """The verdict of each reader, who all begin at once; and the seconds until the last one."""
    with tempfile.TemporaryDirectory() as folder:
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, name, code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                text=True,
            )
            for name, code in attempts
        ]
        start = time.monotonic()
        try:
            for reader in readers:
                reader.stdin.write("go\n")
                reader.stdin.flush()
            texts = [
                reader.communicate(timeout=max(1.0, start + TIMEOUT_S - time.monotonic()))[0]
                for reader in readers
            ]
            return texts, time.monotonic() - start
        finally:
            for reader in readers:
                if reader.poll() is None:
                    reader.kill()
                reader.wait()
